"""Phonemes by the program espeak-ng: what it gets, what becomes of its answer, and what it does to the length of a text."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from workers.engine_servers.kokoro_server import espeak
from workers.engine_servers.kokoro_server.espeak import Espeak, EspeakError
from workers.engine_servers.kokoro_server.phonemizer import Phonemizer, TooLongError


def program(folder: Path, script: str) -> str:
    path = folder / "espeak-ng"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return str(path)


def test_espeak_gets_clauses_on_its_input(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    script = f'/bin/cat >> {asked}; echo "|$*" >> {asked}; echo " bɔ̃ʒˈuʁ"; echo "(en)"'
    phonemizer = Phonemizer(tmp_path, program(tmp_path, script))
    assert list(phonemizer.pieces("Bonjour; -v xx, $(id)!", "f")) == ["bɔ̃ʒˈuʁ; bɔ̃ʒˈuʁ, bɔ̃ʒˈuʁ!"]
    options = "|-q --ipa --tie=͡ -v fr-fr --stdin\n"
    assert asked.read_text() == f"Bonjour{options}-v xx{options}$(id){options}"


@pytest.mark.parametrize(
    ("ipa", "language", "ours"),
    [
        ("həlˈo͡ʊ wˈɜːld", "a", "həlˈO wˈɜɹld"),
        ("t͡ʃˈe͡ɪnd͡ʒ", "b", "ʧˈAnʤ"),
        ("bˈeta", "e", "bˈeta"),
        ("(en)wˈiːk(fr)", "f", "wˈiːk"),
        ("(͡e͡n)mˈiːt(͡f͡r) mə", "f", "mˈiːt mə"),
        ("ɡ9\n", "e", "ɡ"),
    ],
)
def test_its_phonemes_become_ours(ipa: str, language: str, ours: str) -> None:
    assert espeak.translated(ipa, language) == ours


def test_a_mark_between_digits_belongs_to_the_number(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    phonemizer = Phonemizer(tmp_path, program(tmp_path, f'/bin/cat >> {asked}; echo "|" >> {asked}; echo a'))
    assert list(phonemizer.pieces("À 14:30, 3,14 et 2.", "f")) == ["a, a."]
    assert asked.read_text() == "À 14:30|\n3,14 et 2|\n"


def test_espeak_gets_no_markup_control_characters_or_letters_of_other_scripts(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    phonemizer = Phonemizer(tmp_path, program(tmp_path, f"/bin/cat >> {asked}; echo a"))
    text = '<speak>Un<break time="1s"/>deux\0trois Привет 你好</speak>'
    assert list(phonemizer.pieces(text, "f")) == ["a"]
    assert asked.read_text().split() == ["Un", "deux", "trois"]


@pytest.mark.skipif(not shutil.which("espeak-ng"), reason="the program espeak-ng is not installed")
@pytest.mark.parametrize(
    ("text", "language", "phonemes"),
    [
        ("Bonjour, 3 amis.", "f", "bɔ̃ʒˈuʁ, tʁwˈaz amˈi."),
        ("Meet me.", "f", "mˈiːt mə."),
        ("Hello world", "a", "həlˈO wˈɜɹld"),
    ],
)
def test_the_real_program(tmp_path: Path, text: str, language: str, phonemes: str) -> None:
    assert list(Phonemizer(tmp_path, str(shutil.which("espeak-ng"))).pieces(text, language)) == [phonemes]


def test_a_failing_program_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EspeakError, match="exit code 3"):
        Espeak(program(tmp_path, "exit 3")).phonemize("Hola", "e")
    with pytest.raises(EspeakError, match="failed"):
        Espeak("/nonexistent").phonemize("Hola", "e")
    monkeypatch.setattr(espeak, "TIMEOUT_S", 0.1)
    with pytest.raises(EspeakError, match="TimeoutExpired"):
        Espeak(program(tmp_path, f"exec {os.environ.get('SLEEP', '/bin/sleep')} 60")).phonemize("Hola", "e")


def test_digits_for_espeak_count_as_words(tmp_path: Path) -> None:
    with pytest.raises(TooLongError):
        list(Phonemizer(tmp_path, program(tmp_path, "echo a")).pieces("1" * 100, "f", 800))
