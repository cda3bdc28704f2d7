import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

import org.opensearch.common.settings.Settings;
import org.opensearch.http.HttpServerTransport;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;

/**
 * A single OpenSearch node for tests, without security: java -cp 'lib/*' OpenSearchNode.java DATA PORT PLUGIN_CLASS ...
 * Port 0 takes a free one. Once it answers it prints "listening on PORT" and runs until its input ends or it is killed.
 */
public class OpenSearchNode extends Node {
    OpenSearchNode(Settings settings, List<Class<? extends Plugin>> plugins) {
        super(InternalSettingsPreparer.prepareEnvironment(settings, Collections.emptyMap(), null, () -> "test"), plugins, false);
    }

    public static void main(String[] args) throws Exception {
        Settings settings = Settings.builder()
            .put("path.home", Path.of(args[0]).toAbsolutePath().toString())
            .put("cluster.name", "nanoagentrl-test").put("node.name", "test")
            .put("network.host", "127.0.0.1").put("http.port", args[1]).put("transport.port", "0")
            .put("discovery.type", "single-node").put("http.type", "netty4").put("transport.type", "netty4")
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
        List<Class<? extends Plugin>> plugins = new ArrayList<>();
        for (String name : List.of(args).subList(2, args.length)) {
            plugins.add(Class.forName(name).asSubclass(Plugin.class));
        }
        Node node = new OpenSearchNode(settings, plugins).start();
        int port = node.injector().getInstance(HttpServerTransport.class).boundAddress().publishAddress().getPort();
        System.out.println("listening on " + port);
        while (System.in.read() >= 0) {
        }
        Runtime.getRuntime().halt(0);
    }
}
