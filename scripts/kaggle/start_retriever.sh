#!/usr/bin/env bash
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/kaggle/common.sh
. "$here/common.sh"

# Address of the server, and passages for a query of a request that does not say it.
HOST=${HOST:-127.0.0.1}
PORT=${PORT:-8000}
TOPK=${TOPK:-3}
# Longest wait for it, in seconds. Reading 14 GB of corpus takes a minute or two.
WAIT=${WAIT:-900}

usage() {
  cat <<'TEXT'
Serve the index that setup_retriever.sh fetched, in the Search-R1 protocol, in the background; wait until it answers.

Usage: DATA=/big/disk scripts/kaggle/start_retriever.sh [start | stop | status | foreground]

  start       the default; does nothing if it runs already
  stop        lets requests under way end, and ends it
  status      says whether it answers; exit status 0 if it does
  foreground  stays in this terminal, as a supervisor wants it

The log is DATA/retriever.log, the number of the process in DATA/retriever.pid.

Examples:
  DATA=/big/disk PORT=8001 JAVA_OPTS=-Xmx16g scripts/kaggle/start_retriever.sh
  go run ./scripts/train --config configs/search_qwen3b_80gb.yaml --set retriever_url=http://127.0.0.1:8001
  DATA=/big/disk scripts/kaggle/start_retriever.sh stop

Variables: HOST, PORT, TOPK, WAIT (seconds), ALLOW_MISSING, and those of setup_retriever.sh.
TEXT
}

case ${1:-start} in
  -h | --help) usage; exit ;;
  start | stop | status | foreground) ;;
  *) usage_error "unexpected argument $1" ;;
esac
[ $# -le 1 ] || usage_error "unexpected argument $2"
[ -n "$DATA" ] || usage_error "set DATA to the folder of setup_retriever.sh"
pid_file=$DATA/retriever.pid log=$DATA/retriever.log

# running prints the number of our process; the number of a process that ended may have gone to another program.
running() {
  local pid
  pid=$(cat "$pid_file" 2>/dev/null) && [ -n "$pid" ] && ps -p "$pid" -o args= 2>/dev/null | grep -q RetrieverServer || return 1
  echo "$pid"
}

healthy() { curl --silent --fail --max-time 5 --noproxy '*' --output /dev/null "http://$HOST:$PORT/healthz"; }

stop() {
  local pid
  pid=$(running) || { rm -f "$pid_file"; say "it does not run"; return; }
  kill "$pid"
  for _ in $(seq 100); do
    running >/dev/null || { rm -f "$pid_file"; say "stopped"; return; }
    sleep 0.2
  done
  kill -9 "$pid"
  rm -f "$pid_file"
  say "it did not stop within 20 s and was killed"
}

start() {
  local pid waited=0
  if pid=$(running); then
    healthy || die "process $pid runs but does not answer at $HOST:$PORT; see $log, or stop it"
    say "it runs already: http://$HOST:$PORT/retrieve, process $pid"
    return
  fi
  ! healthy || die "something else answers at http://$HOST:$PORT; choose another PORT"
  if [ ! -f "$JAR" ] || [ ! -d "$INDEX_DIR" ] || [ ! -f "$CORPUS_FILE" ]; then
    die "run setup_retriever.sh first; there is not all of $JAR, $INDEX_DIR and $CORPUS_FILE"
  fi
  java=$(find_java)
  say "starting, log in $log"
  serve >"$log" 2>&1 </dev/null &
  pid=$!
  disown "$pid"
  echo "$pid" >"$pid_file"
  until healthy; do
    if ! kill -0 "$pid" 2>/dev/null; then
      rm -f "$pid_file"
      tail -n 20 "$log" >&2
      die "it did not start; the end of $log is above"
    fi
    [ "$waited" -lt "$((5 * WAIT))" ] || { kill -9 "$pid"; rm -f "$pid_file"; die "it was not ready after $WAIT s; see $log"; }
    waited=$((waited + 1))
    sleep 0.2
  done
  say "ready: http://$HOST:$PORT/retrieve, process $pid"
}

# serve becomes the server. It stays when the terminal is closed.
serve() {
  trap '' HUP
  server --host "$HOST" --port "$PORT" --topk "$TOPK"
}

case ${1:-start} in
  start) start ;;
  stop) stop ;;
  foreground)
    java=$(find_java)
    serve
    ;;
  status)
    if healthy; then
      say "it answers: http://$HOST:$PORT/retrieve"
    else
      say "it does not answer at http://$HOST:$PORT"
      exit 1
    fi
    ;;
esac
