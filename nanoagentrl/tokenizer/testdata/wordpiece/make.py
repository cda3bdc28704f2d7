"""Makes tokenizer.json and vectors.json beside it: a small WordPiece tokenizer, and what Hugging Face's tokenizers make of
texts with it, with other rules, and with the tokenizer of all-MiniLM-L6-v2.

  python make.py FOLDER_OF_DATA_SETS FOLDER_OF_ALL_MINILM_L6_V2      (needs: pip install tokenizers==0.23.3)

FOLDER_OF_DATA_SETS has a folder with a corpus.jsonl for each data set; a few of its passages become texts, cut to 120
characters.
"""

import json
import pathlib
import random
import sys

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

ODD = [
    "", " ", "\t\n\r", "a", "Hello, World!", "[CLS] x [SEP]", "[MASK]ed", "[mask]", "x[SEP]y", "[UNK]", "[",
    "Beyoncé Ångström naïve façade Çedilla", "e\u0301 versus é", "İstanbul ıI", "STRASSE straße ẞ", "ÀÉÎÕÜ ñ ø Ł đ",
    "东京 is 東京都。日本語のテキスト", "한국어 텍스트", "各\u3000位", "\u4e00x\u9fff", "\U00020000a\U0002b820b\U0002f800",
    "x" * 100, "y" * 101, "z" * 100 + "é", "word " + "q" * 300 + " word", "don't can't ''quoted'' --dash",
    "C++ C# .NET $5.00 10^3 a|b ~x `y` <z>", "1,234.56 50% 3/4 №5 §7 °C", "a\u00adb soft", "zero\u200bwidth\u200djoin\ufeff",
    "tab\tline\nreturn\rvertical\vform\fnext\u0085", "nul\x00bell\x07esc\x1bdel\x7fc1\x9f", "rep\ufffdlace", "pri\ue000vate",
    "“curly” ‘single’ – — … «guille» ¿qué? ¡sí!", "\u037e greek ; \u1fef", "\u2e43\u2e4f new", "\u166d\U000111c9x", "\U000110cd \u08e2x",
    "μ µ Ω Ω ﬁ ﬂ Å K", "مرحبا بالعالم", "שָׁלוֹם", "हिन्दी पाठ", "ไทย", "Zürich–Genève", "😀👍🏽 flags 🇫🇷", "e\u0301\u0302\u0323x",
    "a" + "\u0301" * 40 + "b", "\u1734x \u180f y \u1885", "\u2028line\u2029para", "\u00a0nbsp\u2003em\u3000ideographic",
    "O\u2019Neill's", "http://example.org/a?b=c&d=e_f", "mixed漢字kanjiかな", "ẤẦ ử Ỳ", "\u1e9b\u0323", "ǅ Ǆ ǆ",
]
RULES = [
    {"lowercase": False}, {"strip_accents": False}, {"lowercase": False, "strip_accents": True}, {"clean_text": False},
    {"handle_chinese_chars": False},
]


def passages(data, seed):
    random.seed(seed)
    texts = []
    for corpus in sorted(pathlib.Path(data).glob("*/corpus.jsonl")):
        rows = [json.loads(line)["contents"] for line in corpus.open(encoding="utf-8")]
        odd = [row for row in rows if not row.isascii()]
        for row in random.sample(rows, min(12, len(rows))) + random.sample(odd, min(28, len(odd))):
            at = random.randrange(max(1, len(row) - 120))
            texts.append(row[at:at + 120])
    return texts


def small(texts):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=700, special_tokens=special, limit_alphabet=150))
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def main():
    data, model = sys.argv[1:]
    here = pathlib.Path(__file__).parent
    real = passages(data, 7)
    texts = ODD + real
    tiny = small(real)
    tiny.save(str(here / "tokenizer.json"))
    minilm = Tokenizer.from_file(str(pathlib.Path(model) / "tokenizer.json"))
    minilm.no_truncation()
    minilm.no_padding()
    rows = [{"s": s, "small": tiny.encode(s).ids, "minilm": minilm.encode(s).ids} for s in texts]
    ruled = []
    for rules in RULES:
        tiny.normalizer = normalizers.BertNormalizer(**rules)
        ruled.append({"rules": rules, "ids": [tiny.encode(s).ids for s in ODD]})
    with (here / "vectors.json").open("w", encoding="ascii") as out:
        json.dump({"texts": rows, "ruled": ruled}, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
