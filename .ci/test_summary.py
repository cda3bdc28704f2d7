"""Reads the output of go test -json: prints a line for each package and the output of each failed test, and writes the
skipped tests with their reasons, one a line, to the file given."""

import json
import sys

output, skipped, failed = {}, [], []
for line in sys.stdin:
    try:
        event = json.loads(line)
    except ValueError:
        print(line, end="")  # Build errors of old versions of Go.
        continue
    package, test, action = event.get("Package", event.get("ImportPath", "")), event.get("Test", ""), event["Action"]
    lines = output.setdefault((package, test), [])
    if action in ("output", "build-output"):
        lines.append(event["Output"])
        if not test and event["Output"].startswith(("ok", "FAIL\t", "?")):
            print("   ", event["Output"].rstrip(), flush=True)
    elif action == "skip" and test:
        texts = [text.strip() for text in lines if not text.lstrip().startswith(("===", "---"))]
        reason = " ".join(texts).split(": ", 1)[-1].removeprefix("skipped: ")  # Without the file and the line.
        skipped.append(f"{package.rsplit('/', 1)[-1]}.{test}: {reason}")
    elif action in ("fail", "build-fail") and (package, test) not in failed:
        failed.append((package, test))

for key in failed:
    if text := "".join(output[key]):
        print(f"---- {' '.join(key)}\n{text[-8000:]}")
with open(sys.argv[1], "w") as file:
    file.writelines(f"{line}\n" for line in skipped)
