"""Writes the tokenizers and the ids that the tests compare with.

    generate.py            # writes ids.json with the installed package `tokenizers`
    generate.py --check    # compares ids.json with the installed package
    generate.py --train    # also trains the tokenizers again, on the Python standard library

The texts of TEXTS are those that tokenizers disagree about: white space, scripts, combining characters, long words,
special tokens inside a text.
"""

import argparse
import json
import sys
import sysconfig
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

HERE = Path(__file__).resolve().parent
NAMES = ["bpe", "split", "wordpiece", "unigram"]

TEXTS = [
    "",
    " ",
    "\n",
    "\r\n\r\n",
    "\t \t  \t",
    "Hello, world!",
    "  leading and trailing  ",
    "def add(a, b):\n    return a + b\n",
    "It's we're they'll I'd YOU'RE don't",
    "1234567890 3.14159 1,000,000 0x1F 1e-9",
    "https://example.org/a/b?c=d&e=f#g user@example.org",
    "naïve café résumé Ångström Straße",
    "cafe\u0301 re\u0301sume\u0301 A\u030angstro\u0308m",
    "İstanbul ıI ŞşĞğ ǅ ß",
    "ﬁnancial ﬀ Ⅳ ½ ① ２０２６ ｆｕｌｌ",
    "日本語のテキストと漢字、かな。",
    "中文分词没有空格，这很难。",
    "한국어 문장과 \u1112\u1161\u11ab\u1100\u1173\u11af",
    "Привет, мир! Ёлка",
    "مرحبا بالعالم ١٢٣ שלום",
    "नमस्ते दुनिया ไทยไม่มีช่องว่าง",
    "😀👍🏽👩‍👩‍👧‍👦🇩🇪 ❤️",
    "a\u200bb\u200cc\u200dd\ufeffe\u00ade",
    "non\u00a0breaking\u2003em\u3000ideographic\u2028line\u2029paragraph",
    "null\x00bell\x07escape\x1b[0m delete\x7f",
    "\ufffd \U0010ffff \ue000",
    "a" * 300,
    "ab" * 200 + " " + "-" * 100,
    " " * 50 + "x" + "\n" * 20,
    "<|end|> in a text, <|end|><|end|>text [MASK] [CLS][SEP] </s><s> <pad>",
    "<|e nd|> [mask] < s> <unk>[UNK]",
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor. " * 4,
]

# How tiktoken's cl100k_base, and with it many language models, divides a text.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level_bpe():
    """As GPT-2: bytes, and a pattern that the package has built in."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    return tokenizer, trainer


def split_bpe():
    """As Llama 3: a pattern in the file, NFC, words of the vocabulary without merges, a token before each text."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    return tokenizer, trainer


def wordpiece():
    """As BERT, with truncation and padding, which have no effect on a conversion."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return tokenizer, trainers.WordPieceTrainer(
        vocab_size=1200, special_tokens=special, show_progress=False
    )


def unigram():
    """As T5: NFKC, words that begin with a mark, the end of the text."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=1000,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    return tokenizer, trainer


def finish(name, tokenizer):
    """Adds what needs the trained vocabulary."""
    if name == "split":
        tokenizer.add_tokens([AddedToken("tempor", single_word=True)])
        tokenizer.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(
                    single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)]
                ),
            ]
        )
    if name == "wordpiece":
        ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
        )
        tokenizer.enable_truncation(16)
        tokenizer.enable_padding(length=32, pad_id=0, pad_token="[PAD]")
    if name == "unigram":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
        )


def train():
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(str(path) for path in folder.glob("*.py"))
    makers = {
        "bpe": byte_level_bpe,
        "split": split_bpe,
        "wordpiece": wordpiece,
        "unigram": unigram,
    }
    for name in NAMES:
        tokenizer, trainer = makers[name]()
        tokenizer.train(files, trainer)
        finish(name, tokenizer)
        tokenizer.save(str(HERE / f"{name}.json"), pretty=False)


def ids_of(name):
    tokenizer = Tokenizer.from_file(str(HERE / f"{name}.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return {
        key: [tokenizer.encode(text, add_special_tokens=special).ids for text in TEXTS]
        for key, special in (("plain", False), ("special", True))
    }


def golden():
    found = {"texts": TEXTS, "ids": {name: ids_of(name) for name in NAMES}}
    return json.dumps(found, ensure_ascii=True, separators=(",", ":")) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("--train", action="store_true", help="also train the tokenizers again")
    args = parser.parse_args()
    path = HERE / "ids.json"
    if args.check:
        if path.read_text() != golden():
            sys.exit(f"{path}: the installed package returns other ids")
        return
    if args.train:
        train()
    path.write_text(golden())


if __name__ == "__main__":
    main()
