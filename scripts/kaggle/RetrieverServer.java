import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.anserini.search.ScoredDoc;
import io.anserini.search.SimpleSearcher;
import org.apache.lucene.search.IndexSearcher;

/**
 * Serves a Lucene index of Anserini or Pyserini in the Search-R1 protocol:
 *
 *   java -cp anserini-fatjar.jar RetrieverServer.java --index DIR --corpus FILE [--host 127.0.0.1] [--port 8000] [--topk 3]
 *        [--k1 0.9] [--b 0.4] [--threads N] [--allow_missing 0] [--check]
 *
 *   POST /retrieve {"queries": ["..."], "topk": 3, "return_scores": true}
 *   -> {"result": [[{"document": {"id": "...", "contents": "..."}, "score": 1.0}, ...], ...]}
 *
 * and without return_scores the documents alone. What is wrong with a request is said in {"detail": "..."} with status 400.
 * GET /healthz gives 503 until index and corpus are open and were compared, then 200. --check compares them and ends.
 *
 * The engine is that of Pyserini's LuceneSearcher; this file needs neither Python nor a package beside the jar. The text of a
 * passage is that of the corpus, found by its id, so the index may be one without texts.
 */
public class RetrieverServer {
    static final int MAX_BODY = 32 << 20, MAX_QUERIES = 8192, MAX_QUERY = 64 << 10, MAX_TOPK = 1000;
    static final ObjectMapper JSON = new ObjectMapper();

    final SimpleSearcher searcher;
    final Corpus corpus;
    final int topk;
    final ExecutorService pool;

    RetrieverServer(Options o) throws Exception {
        IndexSearcher.setMaxClauseCount(1 << 20); // else a long query is an error
        searcher = new SimpleSearcher(o.get("index"));
        searcher.set_bm25(Float.parseFloat(o.get("k1")), Float.parseFloat(o.get("b")));
        log("index " + o.get("index") + ": " + searcher.get_total_num_docs() + " passages");
        corpus = new Corpus(Path.of(o.get("corpus")));
        log("corpus " + o.get("corpus") + ": " + corpus.size + " passages");
        topk = Integer.parseInt(o.get("topk"));
        pool = Executors.newFixedThreadPool(Integer.parseInt(o.get("threads")));
        align(Integer.parseInt(o.get("allow_missing")));
        search("warm up", 1);
    }

    public static void main(String[] args) throws Exception {
        Options o = new Options(args);
        if (o.check) {
            try {
                new RetrieverServer(o).pool.shutdown();
            } catch (Mismatch | IOException e) {
                log("ERROR " + e.getMessage());
                System.exit(1);
            }
            return;
        }
        RetrieverServer[] ready = new RetrieverServer[1];
        HttpServer web = HttpServer.create(new InetSocketAddress(o.get("host"), Integer.parseInt(o.get("port"))), 1024);
        web.setExecutor(Executors.newVirtualThreadPerTaskExecutor());
        web.createContext("/healthz", exchange -> {
            RetrieverServer server = ready[0];
            ObjectNode text = JSON.createObjectNode().put("status", server == null ? "loading" : "ok").put("kind", "anserini");
            if (server != null) {
                text.put("passages", server.corpus.size);
            }
            answer(exchange, server == null ? 503 : 200, text);
        });
        web.createContext("/retrieve", exchange -> {
            if (ready[0] == null) {
                answer(exchange, 503, detail("the index is still being opened"));
            } else {
                ready[0].retrieve(exchange);
            }
        });
        web.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            log("stopping");
            web.stop(5); // at most 5 s for requests under way
        }));
        try {
            ready[0] = new RetrieverServer(o);
        } catch (Exception e) {
            log("ERROR " + (e instanceof Mismatch || e instanceof IOException ? e.getMessage() : e.toString()));
            Runtime.getRuntime().halt(1);
        }
        log("serving http://" + o.get("host") + ":" + web.getAddress().getPort() + "/retrieve");
    }

    // ---- requests ----------------------------------------------------------------------------------------------------

    /** A fault of the request. */
    static class BadRequest extends Exception {
        BadRequest(String message) {
            super(message);
        }
    }

    void retrieve(HttpExchange exchange) throws IOException {
        try {
            if (!exchange.getRequestMethod().equals("POST")) {
                answer(exchange, 405, detail("want POST"));
                return;
            }
            answer(exchange, 200, result(exchange.getRequestBody().readNBytes(MAX_BODY + 1)));
        } catch (BadRequest e) {
            answer(exchange, 400, detail(e.getMessage()));
        } catch (Exception | Error e) {
            log("ERROR " + e);
            answer(exchange, 500, detail("the search failed: " + e));
        }
    }

    ObjectNode result(byte[] body) throws Exception {
        if (body.length > MAX_BODY) {
            throw new BadRequest("the request has more than " + MAX_BODY + " bytes");
        }
        JsonNode request;
        try {
            request = JSON.readTree(body);
        } catch (IOException e) {
            throw new BadRequest("not JSON: " + e.getMessage().lines().findFirst().orElse(""));
        }
        List<String> queries = queries(request);
        JsonNode k = request.path("topk");
        if (!k.isMissingNode() && !k.isNull() && (!k.isIntegralNumber() || k.asLong() < 1 || k.asLong() > MAX_TOPK)) {
            throw new BadRequest("topk is " + k + ", must be from 1 to " + MAX_TOPK);
        }
        boolean scores = request.path("return_scores").asBoolean(false);
        List<Future<ArrayNode>> found = new ArrayList<>();
        for (String query : queries) {
            found.add(pool.submit(() -> passages(query, k.asInt(topk), scores)));
        }
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode result = answer.putArray("result");
        for (Future<ArrayNode> one : found) {
            result.add(one.get());
        }
        return answer;
    }

    static List<String> queries(JsonNode request) throws BadRequest {
        JsonNode list = request.path("queries");
        if (list.isMissingNode() && request.path("query").isTextual()) { // SkyRL's client
            list = JSON.createArrayNode().add(request.path("query"));
        }
        if (!list.isArray() || list.isEmpty() || list.size() > MAX_QUERIES) {
            throw new BadRequest("\"queries\" must be a list of 1 to " + MAX_QUERIES + " texts");
        }
        List<String> queries = new ArrayList<>();
        for (JsonNode query : list) {
            if (!query.isTextual() || query.asText().length() > MAX_QUERY) {
                throw new BadRequest("query " + queries.size() + " is not a text of at most " + MAX_QUERY + " characters");
            }
            queries.add(query.asText());
        }
        return queries;
    }

    ArrayNode passages(String query, int k, boolean scores) throws IOException {
        ArrayNode list = JSON.createArrayNode();
        for (ScoredDoc hit : search(query, k)) {
            ObjectNode document = JSON.createObjectNode().put("id", hit.docid).put("contents", corpus.contents(hit.docid));
            if (scores) {
                list.addObject().put("score", hit.score).set("document", document);
            } else {
                list.add(document);
            }
        }
        return list;
    }

    ScoredDoc[] search(String query, int k) throws IOException {
        return searcher.search(query, k);
    }

    static ObjectNode detail(String message) {
        return JSON.createObjectNode().put("detail", message);
    }

    static void answer(HttpExchange exchange, int status, ObjectNode value) throws IOException {
        byte[] text = JSON.writeValueAsBytes(value);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(status, text.length);
        exchange.getResponseBody().write(text);
        exchange.close();
    }

    static void log(String line) {
        System.out.println(java.time.Instant.now().truncatedTo(java.time.temporal.ChronoUnit.SECONDS) + " " + line);
    }

    // ---- index and corpus --------------------------------------------------------------------------------------------

    /** Index and corpus do not belong together. */
    static class Mismatch extends Exception {
        Mismatch(String message) {
            super(message + "; an index and a corpus of different origin give wrong passages: fetch both again");
        }
    }

    /**
     * Makes sure that the index was made of this corpus: as many passages, the same ids, and, for passages from the first to
     * the last, that a search for a passage's own words finds it under its id. Shifted ids, one off, show there.
     */
    void align(int allowMissing) throws Exception {
        int indexed = searcher.get_total_num_docs();
        if (indexed > corpus.size || indexed < corpus.size - allowMissing) {
            throw new Mismatch("the index holds " + indexed + " passages, the corpus " + corpus.size);
        }
        int samples = (int) Math.min(corpus.size, 200), found = 0, tried = 0;
        List<Future<Boolean>> results = new ArrayList<>();
        for (int n = 0; n < samples; n++) {
            int line = samples == 1 ? 0 : (int) ((long) n * (corpus.size - 1) / (samples - 1));
            results.add(pool.submit(() -> finds(line)));
        }
        for (Future<Boolean> one : results) {
            try {
                tried++;
                found += one.get() ? 1 : 0;
            } catch (ExecutionException e) {
                throw e.getCause() instanceof Exception cause ? cause : e;
            }
        }
        if (found < 0.9 * tried) {
            throw new Mismatch("of " + tried + " passages only " + found + " were found by their own words under their own id");
        }
        log("index and corpus belong together: " + found + " of " + tried + " passages found by their own words");
    }

    boolean finds(int line) throws Exception {
        JsonNode passage = corpus.line(line);
        String id = passage.path("id").asText(), contents = passage.path("contents").asText();
        if (contents.isBlank()) {
            return true;
        }
        String[] words = contents.split("\\s+");
        String query = String.join(" ", Arrays.copyOf(words, Math.min(words.length, 64)));
        for (ScoredDoc hit : search(query, 1)) {
            if (hit.docid.equals(id)) {
                return true;
            }
        }
        return false;
    }

    /** The places of the lines of a corpus, in 8 bytes each; ids that are the numbers of their lines take nothing more. */
    static class Corpus {
        final FileChannel file;
        final int size;
        long[] begins = new long[1 << 16];
        Map<String, Integer> lineOf; // null while every id is the number of its line

        Corpus(Path path) throws IOException, Mismatch {
            file = FileChannel.open(path, StandardOpenOption.READ);
            ByteBuffer buffer = ByteBuffer.allocate(8 << 20);
            byte[] text = buffer.array();
            long place = 0;
            int lines = 0, kept = 0;
            for (boolean end = false; !end;) {
                buffer.position(kept);
                while (buffer.hasRemaining() && !end) {
                    end = file.read(buffer) < 0;
                }
                int begin = 0, filled = buffer.position();
                for (int i = kept; i <= filled; i++) {
                    if (i == filled ? !end || begin == filled : text[i] != '\n') {
                        continue;
                    }
                    if (i > begin && !blank(text, begin, i)) {
                        add(lines++, place + begin, text, begin, i, path);
                    }
                    begin = i + 1;
                }
                begin = Math.min(begin, filled);
                if (begin == 0 && !end) {
                    throw new Mismatch(path + ": line " + (lines + 1) + " is longer than " + buffer.capacity() + " bytes");
                }
                place += begin;
                kept = filled - begin;
                System.arraycopy(text, begin, text, 0, kept);
            }
            size = lines;
            begins = Arrays.copyOf(begins, lines + 1);
            begins[lines] = file.size();
        }

        static boolean blank(byte[] text, int begin, int end) {
            while (begin < end && text[begin] <= ' ') {
                begin++;
            }
            return begin == end;
        }

        void add(int line, long begin, byte[] text, int from, int to, Path path) throws IOException, Mismatch {
            if (line + 1 >= begins.length) {
                begins = Arrays.copyOf(begins, 2 * begins.length);
            }
            begins[line] = begin;
            if (lineOf == null && numbered(text, from, to, line)) {
                return;
            }
            JsonNode id = JSON.readTree(text, from, to - from).path("id");
            if (id.isMissingNode()) {
                throw new Mismatch(path + ": line " + (line + 1) + " has no id");
            }
            if (lineOf == null && id.asText().equals(Integer.toString(line))) {
                return;
            }
            if (lineOf == null) {
                lineOf = new HashMap<>();
                for (int before = 0; before < line; before++) {
                    lineOf.put(Integer.toString(before), before);
                }
            }
            if (lineOf.put(id.asText(), line) != null) {
                throw new Mismatch(path + ": line " + (line + 1) + " has the id of an earlier line, " + id.asText());
            }
        }

        /** Whether a line begins with the id that is its number, as those of wiki-18 do; spares taking it apart. */
        static boolean numbered(byte[] text, int from, int to, int line) {
            for (String start : new String[] {"{\"id\": \"" + line + "\"", "{\"id\":\"" + line + "\""}) {
                byte[] want = start.getBytes(StandardCharsets.US_ASCII);
                if (to - from >= want.length && Arrays.equals(text, from, from + want.length, want, 0, want.length)) {
                    return true;
                }
            }
            return false;
        }

        String contents(String id) throws IOException {
            Integer line = lineOf == null ? Integer.valueOf(id) : lineOf.get(id);
            if (line == null || line < 0 || line >= size) {
                throw new IOException("the index knows an id that the corpus does not: " + id);
            }
            JsonNode passage = line(line);
            if (!passage.path("id").asText().equals(id)) {
                throw new IOException("line " + (line + 1) + " of the corpus has another id than " + id + "; did it change?");
            }
            return passage.path("contents").asText();
        }

        JsonNode line(int line) throws IOException {
            ByteBuffer text = ByteBuffer.allocate((int) (begins[line + 1] - begins[line]));
            while (text.hasRemaining() && file.read(text, begins[line] + text.position()) > 0) {
            }
            return JSON.readTree(text.array(), 0, text.position());
        }
    }

    /** The options, --name value. */
    static class Options {
        final Map<String, String> values = new HashMap<>(Map.of("host", "127.0.0.1", "port", "8000", "topk", "3", "k1", "0.9",
            "b", "0.4", "allow_missing", "0", "threads", Integer.toString(Runtime.getRuntime().availableProcessors()),
            "index", "", "corpus", ""));
        boolean check;

        Options(String[] args) {
            for (int i = 0; i < args.length; i++) {
                String name = args[i].replaceFirst("^--", "").replace('-', '_');
                if (name.equals("check")) {
                    check = true;
                } else if (values.containsKey(name) && i + 1 < args.length) {
                    values.put(name, args[++i]);
                } else {
                    fail("unknown option " + args[i] + "; want " + values.keySet());
                }
            }
            if (get("index").isEmpty() || get("corpus").isEmpty()) {
                fail("give --index DIR and --corpus FILE");
            }
        }

        String get(String name) {
            return values.get(name);
        }

        static void fail(String message) {
            System.err.println("RetrieverServer: " + message);
            System.exit(2);
        }
    }
}
