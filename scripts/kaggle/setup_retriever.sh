#!/usr/bin/env bash
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/kaggle/common.sh
. "$here/common.sh"

usage() {
  cat <<'TEXT'
Fetch what Search-R1 searches: Wikipedia of 2018 in 21 million passages, their BM25 index, and the engine.

Usage: DATA=/big/disk scripts/kaggle/setup_retriever.sh [--engine_only]

It needs Java 21 or newer (a JDK), Python 3 with pip, curl, gzip, and 25 GB in DATA, which it checks first. What is there and
whole is not fetched again, and what was cut off goes on where it stopped, so run it again after any failure. At the end it
makes sure that index and corpus belong together. Then: DATA=/big/disk scripts/kaggle/start_retriever.sh
With --engine_only it fetches the engine and ends.

Examples:
  DATA=/kaggle/temp scripts/kaggle/setup_retriever.sh
  DATA=/big/disk CORPUS_FILE=/data/wiki-18.jsonl scripts/kaggle/setup_retriever.sh      # the corpus is there already
  DATA=/tmp/r CORPUS_FILE=my.jsonl INDEX_DIR=my_index scripts/kaggle/setup_retriever.sh # fetches the engine, checks both

Variables: DATA, HUB, INDEX_REPO, CORPUS_REPO, REVISION, HF_TOKEN, INDEX_DIR, CORPUS_FILE, JAR, PYSERINI_VERSION,
PYSERINI_SHA256, PYTHON, JAVA_HOME, JAVA_OPTS, KEEP_ARCHIVE (1 keeps the packed corpus), ALLOW_MISSING (passages that the index
may lack, 0). common.sh says what each is.
TEXT
}

engine_only=0
case ${1:-} in
  '') ;;
  --engine_only | --engine-only) engine_only=1 ;;
  -h | --help) usage; exit ;;
  *) usage_error "unexpected argument $1" ;;
esac
[ -n "$DATA" ] || usage_error "set DATA to a folder on a disk with 25 GB"
for tool in curl gzip tar "$PYTHON" sha256sum; do
  command -v "$tool" >/dev/null || die "$tool is needed and is not on the PATH"
done
java=$(find_java)
mkdir -p "$DATA"
exec 9>"$DATA/.setup.lock"
if command -v flock >/dev/null; then
  flock -n 9 || die "another setup works in $DATA"
fi

# get URL prints what lies there.
get() {
  local header=()
  [ -z "${HF_TOKEN:-}" ] || header=(-H "Authorization: Bearer $HF_TOKEN")
  curl --fail --silent --show-error --location --retry 3 --connect-timeout 20 "${header[@]}" "$1"
}

# listing REPO prints the files of a data set: bytes, SHA-256 (or - for the small ones that have none), path.
listing() {
  local text
  text=$(get "$HUB/api/datasets/$1/tree/$REVISION?recursive=true") || return 1
  "$PYTHON" -c '
import json, sys
for f in json.load(sys.stdin):
    if f["type"] == "file":
        print(f["size"], f.get("lfs", {}).get("oid", "-"), f["path"])' <<<"$text"
}

size_of() { stat -c %s "$1" 2>/dev/null || stat -f %z "$1" 2>/dev/null || echo 0; }

# whole FILE BYTES SHA256 says whether a file is there as it should be. Its digest is computed once and then remembered.
whole() {
  [ -f "$1" ] && [ "$(size_of "$1")" = "$2" ] || return 1
  [ "$3" != - ] || return 0
  [ "$(cat "$1.verified" 2>/dev/null)" != "$3" ] || return 0
  [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$3" ] || return 1
  printf '%s' "$3" >"$1.verified"
}

# fetch REPO PATH FILE BYTES SHA256 downloads a file, going on where an earlier try stopped.
fetch() {
  local url=$HUB/datasets/$1/resolve/$REVISION/$2 file=$3 bytes=$4 sha=$5 part=$3.part try header=() status
  if whole "$file" "$bytes" "$sha"; then return; fi
  [ -z "${HF_TOKEN:-}" ] || header=(-H "Authorization: Bearer $HF_TOKEN")
  mkdir -p "$(dirname "$file")"
  for try in 1 2 3 4 5 6; do
    [ "$(size_of "$part")" -le "$bytes" ] || rm -f "$part"
    if [ "$(size_of "$part")" -lt "$bytes" ]; then
      say "fetching $2, $(size_of "$part") of $bytes bytes are here"
      status=0
      curl --fail --location --continue-at - --connect-timeout 20 --speed-limit 1000 --speed-time 60 --no-progress-meter \
        "${header[@]}" --output "$part" "$url" || status=$?
      [ "$status" -ne 33 ] || rm -f "$part" # the server cannot go on in the middle
    fi
    [ "$bytes" -ne 0 ] || : >>"$part"
    if whole "$part" "$bytes" "$sha"; then
      mv "$part" "$file"
      [ ! -f "$part.verified" ] || mv "$part.verified" "$file.verified"
      return
    fi
    if [ "$(size_of "$part")" = "$bytes" ]; then
      say "$2 has another SHA-256 than $sha; fetching it anew"
      rm -f "$part"
    fi
    sleep $((PAUSE * try))
  done
  die "$url could not be fetched; look at the messages above and run this again, it goes on from here"
}

# need BYTES refuses to begin what the disk has no room for.
need() {
  local free
  free=$(($(df -Pk "$DATA" | awk 'NR == 2 {print $4}') * 1024))
  say "needs $(($1 / 1000000)) MB more in $DATA, $((free / 1000000)) MB are free"
  [ "$free" -ge "$1" ] || die "there is not enough room in $DATA; choose another disk with DATA=..."
}

# ---- engine ----------------------------------------------------------------------------------------------------------

# fetch_engine takes the jar out of Pyserini's source archive; Pyserini itself is not installed.
fetch_engine() {
  local archive=$DATA/pyserini-$PYSERINI_VERSION.tar.gz
  if [ -f "$JAR" ]; then return; fi
  [ -f "$archive" ] || "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --ignore-requires-python \
    --dest "$DATA" "pyserini==$PYSERINI_VERSION"
  whole "$archive" "$(size_of "$archive")" "$PYSERINI_SHA256" || {
    rm -f "$archive"
    die "the archive of pyserini $PYSERINI_VERSION has another SHA-256 than $PYSERINI_SHA256; run this again"
  }
  "$PYTHON" - "$archive" "$JAR" <<'PYTHON'
import os, shutil, sys, tarfile
archive, jar = sys.argv[1:]
with tarfile.open(archive) as tar:
    member = next(m for m in tar if m.name.endswith("-fatjar.jar"))
    with open(jar + ".part", "wb") as out:
        shutil.copyfileobj(tar.extractfile(member), out)
os.rename(jar + ".part", jar)
PYTHON
  rm -f "$archive" "$archive.verified"
}
if [ "$engine_only" = 1 ]; then
  fetch_engine
  say "engine   $JAR"
  exit
fi

# ---- what there is to do ---------------------------------------------------------------------------------------------

packed=$DATA/corpus.gz
missing=0 index_files='' corpus_line=''
if [ "$INDEX_DIR" = "$DATA/bm25" ]; then
  index_files=$(listing "$INDEX_REPO" | awk '$3 ~ /^bm25\//') || die "no answer from $HUB about $INDEX_REPO"
  [ -n "$index_files" ] || die "$INDEX_REPO holds no folder bm25"
  while read -r bytes _ path; do
    missing=$((missing + bytes - $(size_of "$DATA/$path") - $(size_of "$DATA/$path.part")))
  done <<<"$index_files"
fi
if [ "$CORPUS_FILE" = "$DATA/wiki-18.jsonl" ] && [ ! -f "$CORPUS_FILE.whole" ]; then
  corpus_line=$(listing "$CORPUS_REPO" | grep '\.jsonl\.gz$' | head -n 1) || die "$HUB tells of no .jsonl.gz in $CORPUS_REPO"
  # Text of this kind packs to a third; both are there for a while.
  missing=$((missing + 4 * ${corpus_line%% *} - $(size_of "$packed") - $(size_of "$packed.part")))
fi
[ -f "$JAR" ] || missing=$((missing + 250000000))
need $((missing > 0 ? missing : 0))

fetch_engine
say "engine   $JAR"

# ---- index and corpus ------------------------------------------------------------------------------------------------

if [ -n "$index_files" ]; then
  while read -r bytes sha path; do
    fetch "$INDEX_REPO" "$path" "$DATA/$path" "$bytes" "$sha"
  done <<<"$index_files"
fi
[ -d "$INDEX_DIR" ] || die "there is no folder $INDEX_DIR"
say "index    $INDEX_DIR"
if [ -n "$corpus_line" ]; then
  read -r bytes sha path <<<"$corpus_line"
  fetch "$CORPUS_REPO" "$path" "$packed" "$bytes" "$sha"
  say "unpacking $path"
  if [ "$(gzip -dc "$packed" 2>/dev/null | head -c 262 | tail -c 5 | tr -d '\0' || true)" = ustar ]; then
    tar -xzOf "$packed" >"$CORPUS_FILE.part" # an archive of one file, whatever its name says
  else
    gzip -dc "$packed" >"$CORPUS_FILE.part"
  fi
  mv "$CORPUS_FILE.part" "$CORPUS_FILE"
  : >"$CORPUS_FILE.whole"
  [ "${KEEP_ARCHIVE:-0}" = 1 ] || rm -f "$packed" "$packed.verified"
fi
[ -f "$CORPUS_FILE" ] || die "there is no file $CORPUS_FILE"
say "corpus   $CORPUS_FILE"

(server --check) 2>"$DATA/check.log" || {
  grep -v WARNING "$DATA/check.log" >&2 || true
  die "index and corpus cannot be used together; see above"
}
say "ready: DATA=$DATA $here/start_retriever.sh"
