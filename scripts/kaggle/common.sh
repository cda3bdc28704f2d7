# What setup_retriever.sh and start_retriever.sh share. Sourced by them; every variable can be set in the environment.
# shellcheck shell=bash

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }
usage_error() { printf '%s: %s; see --help\n' "${0##*/}" "$*" >&2; exit 2; }

# The folder that receives everything, some 25 GB while it is set up and 17 GB after.
DATA=${DATA:-}
# Where the files come from: data sets of the hub, at a revision.
HUB=${HUB:-https://huggingface.co}
INDEX_REPO=${INDEX_REPO:-PeterJinGo/wiki-18-bm25-index}
CORPUS_REPO=${CORPUS_REPO:-PeterJinGo/wiki-18-corpus}
REVISION=${REVISION:-main}
# Seconds between tries of a transfer, times their number.
PAUSE=${PAUSE:-2}
# The folder of the index and the file of the corpus. Set them to what is on the disk already, and it is not fetched.
INDEX_DIR=${INDEX_DIR:-${DATA:+$DATA/bm25}}
CORPUS_FILE=${CORPUS_FILE:-${DATA:+$DATA/wiki-18.jsonl}}
# The jar with Anserini and Lucene, which Pyserini brings along, and the version and digest of Pyserini's source archive.
JAR=${JAR:-${DATA:+$DATA/anserini-fatjar.jar}}
PYSERINI_VERSION=${PYSERINI_VERSION:-2.4.0}
PYSERINI_SHA256=${PYSERINI_SHA256:-45979fa5fc8d54a35dce15cfd59d4d3dc4b4b29d8f0442e1e1f3a9ab0a303541}
PYTHON=${PYTHON:-python3}
# Options of the Java machine, such as -Xmx16g; without one it takes up to a quarter of the memory.
JAVA_OPTS=${JAVA_OPTS:-}

# find_java prints the path of a java of version 21 or newer that can compile, which a runtime alone cannot.
find_java() {
  local home version
  for home in "${JAVA_HOME:-}" "$(dirname "$(dirname "$(readlink -f "$(command -v java || echo /)")")")" /usr/lib/jvm/*; do
    [ -x "$home/bin/javac" ] || continue
    version=$(sed -nE 's/^JAVA_VERSION="([0-9]+).*/\1/p' "$home/release" 2>/dev/null)
    if [ "${version:-0}" -ge 21 ]; then
      echo "$home/bin/java"
      return
    fi
  done
  die "Java 21 or newer with a compiler is needed, for example apt-get install openjdk-21-jdk-headless; if it is" \
    "elsewhere, point JAVA_HOME at it"
}

# server becomes RetrieverServer.java with options; here and java are set by who sources this.
server() {
  # shellcheck disable=SC2154,SC2086
  exec "$java" --enable-native-access=ALL-UNNAMED --add-modules jdk.incubator.vector $JAVA_OPTS -cp "$JAR" \
    "$here/RetrieverServer.java" --index "$INDEX_DIR" --corpus "$CORPUS_FILE" --allow_missing "${ALLOW_MISSING:-0}" "$@"
}
