"""From words to phonemes: dictionaries, endings, neighbours, unknown words, and the pieces that the model gets."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.engine_servers.kokoro_server.english import phonemize
from workers.engine_servers.kokoro_server.lexicon import MAX_FILE_BYTES, Lexicon
from workers.engine_servers.kokoro_server.phonemizer import (
    FIRST_PIECE,
    PIECE,
    LanguageError,
    Phonemizer,
    TooLongError,
    joined,
)
from workers.engine_servers.kokoro_server.spelling import SpellingModel
from workers.engine_servers.kokoro_server.symbols import MAX_SYMBOLS, SYMBOLS, numbers_of
from workers.files.errors import BrokenError

GOLD: dict[str, Any] = {
    **{letter: f"ˈ{letter.lower()}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
    "cat": "kˈæt",
    "box": "bˈɑks",
    "walk": "wˈɔk",
    "want": "wˈɑnt",
    "put": "pˈʊt",
    "stop": "stˈɑp",
    "make": "mˈAk",
    "try": "tɹˈI",
    "apple": "ˈæpəl",
    "to": "tu",
    "the": "ði",
    "he": "hi",
    "have": {"DEFAULT": "hæv", "None": "hˈæv"},
    "read": {"DEFAULT": "ɹˈid", "VBN": "ɹˈɛd"},
    "record": {"DEFAULT": "ɹˈɛkəɹd", "VERB": "ɹəkˈɔɹd"},
    "us": "ˌʌs",
    "US": {"DEFAULT": "ˌʌs", "NOUN": None},
    "London": "lˈʌndən",
    "lemon": "lˈɛmən",
    "bus": "bˈʌs",
    "nasa": "nˈæsə",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lexicon")
    (folder / "us_gold.json").write_text(json.dumps(GOLD))
    (folder / "us_silver.json").write_text(json.dumps({"zebra": "zˈibɹə", "cat": "wrong"}))
    return folder


@pytest.fixture(scope="module")
def lexicon(folder: Path) -> Lexicon:
    return Lexicon(folder, "us")


def spoken(lexicon: Lexicon, text: str) -> str:
    return phonemize(text, lexicon, lambda word: f"<{word}>")


@pytest.mark.parametrize(
    ("word", "phonemes"),
    [
        ("cat", "kˈæt"),
        ("Cat", "kˈæt"),
        ("CAT", "kˈæt"),
        ("zebra", "zˈibɹə"),
        ("london", "lˈʌndən"),
        ("cats", "kˈæts"),
        ("cat's", "kˈæts"),
        ("cats'", "kˈæts"),
        ("zebras", "zˈibɹəz"),
        ("boxes", "bˈɑksᵻz"),
        ("tries", "tɹˈIz"),
        ("walked", "wˈɔkt"),
        ("wanted", "wˈɑntᵻd"),
        ("stopped", "stˈɑpt"),
        ("walking", "wˈɔkɪŋ"),
        ("making", "mˈAkɪŋ"),
        ("stopping", "stˈɑpɪŋ"),
        ("putting", "pˈʊɾɪŋ"),
        ("xyzzy", None),
        ("s", "ˈs"),
    ],
)
def test_a_word_and_its_endings(lexicon: Lexicon, word: str, phonemes: str | None) -> None:
    assert lexicon.find(word) == phonemes


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("The cat, the apple.", "ðə kˈæt, ði ˈæpəl."),
        ("A cat to walk to", "ɐ kˈæt tə wˈɔk tu"),
        ("He have read the record.", "hi hæv ɹˈɛd ðə ɹˈɛkəɹd."),
        ("To record", "tə ɹəkˈɔɹd"),
        ("I have.", "ˌI hˈæv."),
        ("us in the US", "ˌʌs ˌiˈn ði ˌuˈs"),
        ("MAKE THE CAT WALK", "mˈAk ðə kˈæt wˈɔk"),
        ("NASA, GPU", "nˈæsə, ˌɡˌpˈu"),
        ("lemonbus", "lˈɛmənbˌʌs"),
        ("Xyzzy!", "<Xyzzy>!"),
        ("iLemon", "ˈilˈɛmən"),
        ("well-cat", "<well> kˈæt"),
        ("café", "<cafe>"),
        ("Straße Łódź æ", "<Strasse> <Lodz> <ae>"),
        ("putting", "pˈʊTɪŋ"),
        ("— “cat” (cat)…", "— “kˈæt” (kˈæt)…"),
        ("日本", ""),
    ],
)
def test_words_beside_others(lexicon: Lexicon, text: str, phonemes: str) -> None:
    found = spoken(lexicon, text).replace("<in>", "ˌiˈn")
    assert found.replace("ˌg", "ˌɡ") == phonemes


def test_a_broken_dictionary_is_named(tmp_path: Path) -> None:
    path = tmp_path / "us_gold.json"
    for data in (b"", b"[]", b'{"a":1}', b'{"a":{"DEFAULT":2}}', b"\xff"):
        path.write_bytes(data)
        with pytest.raises(BrokenError, match=r"us_gold\.json is not"):
            Lexicon(tmp_path, "us")
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(BrokenError, match="too large"):
        Lexicon(tmp_path, "us")


# Unknown words.

_OUTPUTS = ("AA0", "AA1", "AA2", "AE0", "AE1", "AE2", "AH0")
"""The first of CMUdict's symbols in the order of the network."""


def network(path: Path, word: str, size: int = 8) -> Path:
    """Write a network that says the same for every word: a chain of symbols, each of which leads to the next."""
    generator = np.random.default_rng(3)
    letters, outputs = 29, 74
    weights = {
        "enc_emb": generator.normal(size=(letters, size)),
        "dec_emb": np.eye(outputs),
        "fc_w": np.eye(outputs),
        "fc_b": np.zeros(outputs),
    }
    hidden = outputs
    for side, width in (("enc", size), ("dec", outputs)):
        weights |= {
            f"{side}_w_ih": np.zeros((3 * hidden, width)),
            f"{side}_w_hh": np.zeros((3 * hidden, hidden)),
            f"{side}_b_ih": np.zeros(3 * hidden),
            f"{side}_b_hh": np.zeros(3 * hidden),
        }
    weights["enc_emb"] = generator.normal(size=(letters, size))
    weights["dec_b_ih"][hidden : 2 * hidden] = -50  # the state is always new
    chain = [2, *(4 + _OUTPUTS.index(symbol) for symbol in word.split()), 3]
    for last, following in itertools.pairwise(chain):
        weights["dec_w_ih"][2 * hidden + following, last] = 5
    np.savez(path, **{name: value.astype("f4") for name, value in weights.items()})
    return path


def test_the_network_says_symbol_after_symbol(tmp_path: Path) -> None:
    model = SpellingModel(network(tmp_path / "s.npz", "AA1 AE0 AH0 AE2"))
    assert model.pronounce("anything") == "ˈɑæəˌæ"
    assert model.pronounce("Q's" * 100, british=True) == "ˈɑaəˌa"


def test_other_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    np.savez(path, enc_w_hh=np.zeros((6, 2), "f4"))
    with pytest.raises(BrokenError, match="other weights"):
        SpellingModel(path)
    good = dict(np.load(network(path, "AA1")))
    np.savez(path, **{**good, "fc_w": np.zeros((3, 74), "f4")})
    with pytest.raises(BrokenError, match="other sizes"):
        SpellingModel(path)
    path.write_bytes(b"no archive")
    with pytest.raises(BrokenError, match="cannot be read"):
        SpellingModel(path)
    np.savez(path, **{**good, "fc_b": np.array([{}], object)})
    with pytest.raises(BrokenError, match="cannot be read"):  # a pickle
        SpellingModel(path)


# Pieces.


def test_numbers_of_symbols_are_unique() -> None:
    assert len(set(SYMBOLS.values())) == len(SYMBOLS) == 114
    assert numbers_of("hˈɑ\n9") == [50, 156, 69]


@given(st.lists(st.text(alphabet="abcdˈ ,.;!", max_size=400), max_size=6))
def test_pieces_are_short_and_nothing_is_lost(sentences: list[str]) -> None:
    pieces = list(joined(iter(sentences)))
    assert all(0 < len(piece) <= PIECE < MAX_SYMBOLS for piece in pieces)
    if pieces:
        assert len(pieces[0]) <= FIRST_PIECE
    kept = [sentence for sentence in sentences if sentence.strip(" ,.;!")]
    assert "".join("".join(pieces).split()) == "".join("".join(kept).split())


def test_a_short_first_sentence_comes_alone_and_others_come_together(folder: Path) -> None:
    text = "A cat. " + "The cat walks. " * 10
    first, *others = Phonemizer(folder, "").pieces(text, "a")
    assert first.startswith("ɐ kˈæt. ðə kˈæt wˈɔks.")
    assert FIRST_PIECE < len(others[0]) <= PIECE


def test_without_a_network_an_unknown_word_is_spelled(folder: Path) -> None:
    assert list(Phonemizer(folder, "").pieces("Xyz.", "a")) == ["ˌxˌyˈz."]


def test_a_word_without_end_is_spoken_in_parts(folder: Path) -> None:
    assert len("".join(Phonemizer(folder, "").pieces("q" * 4_096, "a"))) >= 4_096


@pytest.mark.parametrize(("text", "length"), [("a" * 50, 50), ("7 " * 20, 20 * len("seven "))])
def test_a_text_is_measured_as_it_is_spoken(folder: Path, text: str, length: int) -> None:
    assert list(Phonemizer(folder, "").pieces(text, "a", length))
    with pytest.raises(TooLongError) as caught:
        list(Phonemizer(folder, "").pieces(text, "a", 0.9 * length))
    assert caught.value.length == pytest.approx(length, abs=1)


def test_british_voices_do_without_their_own_dictionary(folder: Path) -> None:
    assert list(Phonemizer(folder, "").pieces("A cat.", "b")) == ["ɐ kˈæt."]


def test_other_languages_need_espeak(folder: Path) -> None:
    with pytest.raises(LanguageError, match="espeak-ng"):
        list(Phonemizer(folder, "").pieces("Bonjour", "f"))
    with pytest.raises(LanguageError, match="Japanese"):
        list(Phonemizer(folder, "").pieces("Bonjour", "j"))


def test_without_a_dictionary_and_espeak_there_is_no_server(tmp_path: Path) -> None:
    with pytest.raises(LanguageError, match="misaki"):
        Phonemizer(tmp_path, "")
