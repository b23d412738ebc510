"""Checkpoints: bits kept, crashes survived, errors named."""

import json
import os
import pathlib

import numpy as np
import pytest

from chainrule.models import checkpoints
from chainrule.models.gpt import GPT, GPTConfig
from chainrule.models.mlp import MLP, MLPConfig
from chainrule.models.tokenizers import CharTokenizer
from chainrule.nn.module import Module, Parameter

CONFIG = GPTConfig(vocab_size=5, context=4, n_layer=1, n_head=2, d_model=4)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_every_bit_comes_back(tmp_path):
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324])
    quiet_nan = np.array([0x7FF8000000000123], np.uint64).view(np.float64)  # with a payload
    arrays = {
        **{f"f{size}": odd.astype(f"f{size}") for size in (2, 4, 8)},
        "payload": quiet_nan,
        "ids": np.arange(6).reshape(2, 3),
        "bytes": np.arange(5, dtype=np.uint8),
        "mask": np.array([True, False]),
        "one": np.array(3.5, np.float32),
        "none": np.zeros((0, 4), np.float32),
    }
    checkpoints.save(tmp_path / "a", arrays, {"said": "名 = ∂"})
    found, metadata = checkpoints.load(tmp_path / "a")
    assert metadata == {"said": "名 = ∂"}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert same_bits(found[name], array), name


def test_views_are_saved_as_they_are_seen(tmp_path):
    x = np.arange(12.0).reshape(3, 4)
    checkpoints.save(tmp_path / "a", {"transposed": x.T, "every second": x[:, ::2], "turned": x[::-1], "big": x.astype(">f8")})
    found, _ = checkpoints.load(tmp_path / "a")
    np.testing.assert_array_equal(found["transposed"], x.T)
    np.testing.assert_array_equal(found["every second"], x[:, ::2])
    np.testing.assert_array_equal(found["turned"], x[::-1])
    np.testing.assert_array_equal(found["big"], x)


def test_what_the_format_does_not_have_is_refused(tmp_path):
    with pytest.raises(TypeError, match="names has dtype <U1"):
        checkpoints.save(tmp_path / "a", {"names": np.array(["a"])})
    with pytest.raises(TypeError, match="wide has dtype"):
        checkpoints.save(tmp_path / "a", {"wide": np.zeros(1, np.longdouble)})
    with pytest.raises(ValueError, match="__metadata__ is taken"):
        checkpoints.save(tmp_path / "a", {"__metadata__": np.zeros(1)})
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        checkpoints.save(tmp_path / "a", {"\ud800": np.zeros(1)})
    assert list(tmp_path.iterdir()) == []


def written(path, dtype, shape, numbers):
    """A safetensors file of one array x, by hand."""
    header = json.dumps({"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(numbers)]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + numbers)
    return path


def test_bfloat16_comes_as_float32(tmp_path):
    """Its bits by hand: 0x3F80 is 1, 0xC040 is -3, 0x7F80 infinity, 0x0001 the least; float32 has the same bits in front."""
    bits = np.array([[0x3F80, 0xC040], [0x7F80, 0x0001]], "<u2")
    x = checkpoints.load(written(tmp_path / "a", "BF16", [2, 2], bits.tobytes()))[0]["x"]
    assert same_bits(x, np.array([[1, -3], [np.inf, 2.0**-133]], np.float32))


def test_a_dtype_that_numpy_does_not_have(tmp_path):
    with pytest.raises(ValueError, match="x is kept as F8_E4M3; supported are F64"):
        checkpoints.load(written(tmp_path / "a", "F8_E4M3", [2], b"\0\0"))


def fails_at(moment, monkeypatch):
    def fail(*args, **options):
        raise KeyboardInterrupt

    if moment == "written":
        monkeypatch.setattr(os, "fsync", fail)
    elif moment == "forced to the disk":
        monkeypatch.setattr(pathlib.Path, "replace", fail)
    elif moment == "renamed":
        monkeypatch.setattr(checkpoints, "_sync_folder", fail)


@pytest.mark.parametrize(("moment", "expected"), [("written", 1.0), ("forced to the disk", 1.0), ("renamed", 2.0)])
def test_a_crash_leaves_the_old_file_or_the_new_one(moment, expected, tmp_path, monkeypatch):
    path = tmp_path / "a"
    checkpoints.save(path, {"x": np.array([1.0])})
    with monkeypatch.context() as patched:
        fails_at(moment, patched)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(path, {"x": np.array([2.0])})
    assert checkpoints.load(path)[0]["x"] == expected
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_kill_left_over_goes_when_nobody_can_be_writing_it(tmp_path):
    old, young, other = (tmp_path / name for name in (".chainrule-1.tmp", ".chainrule-2.tmp", ".b.123.tmp"))
    for left_over in (old, young, other):
        left_over.write_bytes(b"half")
    for left_over in (old, other):
        os.utime(left_over, (0, 0))
    checkpoints.save(tmp_path / "a", {"x": np.zeros(1)})
    assert set(tmp_path.iterdir()) == {young, other, tmp_path / "a"}  # the young one may be another run's


def test_two_saves_at_once_do_not_meet(tmp_path, monkeypatch):
    """While one is being written, another is begun and ended: both are whole, the one that ends last stays."""
    fsync, begun = os.fsync, []

    def meanwhile(descriptor):
        if not begun:
            begun.append(True)
            checkpoints.save(tmp_path / "a", {"x": np.ones(1)})
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", meanwhile)
    checkpoints.save(tmp_path / "a", {"x": np.zeros(1)})
    assert checkpoints.load(tmp_path / "a")[0]["x"] == 0
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path):
    (tmp_path / "far").mkdir()
    link, target = tmp_path / "link", tmp_path / "far" / "a"
    link.symlink_to(target)
    for x in range(2):  # first there is no file where it leads
        checkpoints.save(link, {"x": np.full(1, x)})
        assert link.is_symlink()
        assert checkpoints.load(target)[0]["x"] == x
    assert list((tmp_path / "far").iterdir()) == [target]


def test_what_is_no_file_is_not_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    for name in ("folder", "pipe", "circle"):
        with pytest.raises(FileExistsError, match=f"in the way: .*{name}"):
            checkpoints.save(tmp_path / name, {"x": np.zeros(1)})
    assert (tmp_path / "pipe").is_fifo()
    assert len(list(tmp_path.iterdir())) == 3


def test_a_save_that_fails_names_its_file(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for path, error in ((tmp_path / "absent" / "a", FileNotFoundError), (tmp_path / "file" / "a", NotADirectoryError)):
        with pytest.raises(error) as raised:
            checkpoints.save(path, {"x": np.zeros(1)})
        assert raised.value.filename == str(path)


def test_file_names_that_are_long_or_not_utf_8(tmp_path):
    for name in ("a" * 255, os.fsdecode(b"\xff\xfe")):
        checkpoints.save(tmp_path / name, {"x": np.ones(1)})
        assert checkpoints.load(tmp_path / name)[0]["x"] == 1


def test_a_full_disk_leaves_the_old_file(tmp_path):
    """The system refuses to write more than this."""
    import resource  # not everywhere

    checkpoints.save(tmp_path / "a", {"x": np.ones(1)})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            checkpoints.save(tmp_path / "a", {"x": np.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert checkpoints.load(tmp_path / "a")[0]["x"] == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_the_file_has_the_rights_of_any_other(tmp_path):
    (tmp_path / "other").write_bytes(b"")
    checkpoints.save(tmp_path / "a", {"x": np.zeros(1)})
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no checkpoint"):
        checkpoints.load(tmp_path / "a")
    with pytest.raises(FileNotFoundError, match="There is no checkpoint"):
        checkpoints.load(tmp_path)  # a folder
    checkpoints.save(tmp_path / "a", {"x": np.arange(100.0)})
    whole = (tmp_path / "a").read_bytes()
    for content in (b"", b"\x80\x04pickle", whole[:4], whole[:40], whole[:-1], whole + b"x"):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(ValueError, match="not a safetensors file, or is damaged or cut short"):
            checkpoints.load(tmp_path / "a")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_model_is_made_again(dtype, tmp_path):
    model = GPT(CONFIG, seed=3, dtype=dtype)
    tokenizer = CharTokenizer.from_text("abcd", ["<end>"])
    checkpoints.save_model(tmp_path / "a", model, tokenizer, source="名")
    found, found_tokenizer, metadata = checkpoints.load_model(tmp_path / "a")
    assert type(found) is GPT
    assert found.config == CONFIG
    assert found_tokenizer == tokenizer
    assert metadata["source"] == "名"
    assert metadata["model"] == "GPT"
    state, found_state = model.state_dict(), found.state_dict()
    assert list(found_state) == list(state)
    assert all(same_bits(found_state[name], state[name]) for name in state)
    ids = np.array([0, 3, 1])
    np.testing.assert_array_equal(found(ids).data, model(ids).data)


def test_tuples_of_a_config_come_back(tmp_path):
    checkpoints.save_model(tmp_path / "a", MLP(MLPConfig((4, 3, 2))))
    model, tokenizer, _ = checkpoints.load_model(tmp_path / "a")
    assert model.config == MLPConfig((4, 3, 2))
    assert tokenizer is None


def test_the_same_model_makes_the_same_bytes(tmp_path):
    for name in "abc":
        checkpoints.save_model(tmp_path / name, MLP(MLPConfig((4, 3, 2))), one=1, two=2, three=3)
    assert len({(tmp_path / name).read_bytes() for name in "abc"}) == 1


def test_arrays_of_training_are_no_parameters(tmp_path):
    checkpoints.save_model(tmp_path / "a", MLP(MLPConfig((2, 2))), arrays={"losses": np.arange(3.0)})
    arrays, _ = checkpoints.load_run(tmp_path / "a")
    assert arrays["training.losses"].tolist() == [0, 1, 2]
    model, _, _ = checkpoints.load_model(tmp_path / "a")
    assert list(model.state_dict()) == ["W1", "b1"]


class Other(Module):
    config = None

    def __init__(self):
        self.w = Parameter(np.zeros(1))


def test_models_that_are_not_known(tmp_path):
    with pytest.raises(TypeError, match=r"one of GPT, .*; got Other"):
        checkpoints.save_model(tmp_path / "a", Other())
    checkpoints.save(tmp_path / "a", {"w": np.zeros(1)}, {"chainrule": '{"model": "RNN"}'})
    with pytest.raises(ValueError, match="holds a RNN; this version knows GPT"):
        checkpoints.load_model(tmp_path / "a")
    checkpoints.save(tmp_path / "a", {"w": np.zeros(1)}, {"format": "pt"})
    with pytest.raises(ValueError, match="not written by save_model"):
        checkpoints.load_model(tmp_path / "a")


def test_parameters_that_do_not_fit(tmp_path):
    model = MLP(MLPConfig((2, 2)))
    checkpoints.save_model(tmp_path / "a", model)
    arrays, header = checkpoints.load(tmp_path / "a")
    checkpoints.save(tmp_path / "a", {"W1": arrays["W1"], "b7": arrays["b1"]}, header)
    with pytest.raises(ValueError, match="missing: b1; unknown: b7"):
        checkpoints.load_model(tmp_path / "a")
    checkpoints.save(tmp_path / "a", {"W1": arrays["W1"], "b1": np.zeros(3)}, header)
    with pytest.raises(ValueError, match=r"b1 has shape \(2,\)"):
        checkpoints.load_model(tmp_path / "a")
    model.b1 = Parameter(np.zeros(2, np.float32))
    with pytest.raises(TypeError, match="one dtype; got float32, float64"):
        checkpoints.save_model(tmp_path / "a", model)


CHARACTERS = {"kind": "char", "characters": ["a"], "special": [], "unknown": "error"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ("", "the entry 'chainrule' of the header is not JSON"),
        ("[]", "is a JSON object"),
        ({"model": None}, "holds a None"),
        ({"model": []}, "holds a"),
        ({"config": None}, "need the model's config; got None"),
        ({"config": []}, "need the model's config"),
        ({"config": {"sizes": [2, 2], "glue": 1}}, "a MLPConfig here has no glue, which a newer version"),
        ({"config": {"sizes": None}}, "The config {'sizes': None} makes no MLPConfig"),
        ({"config": {"sizes": [2.5, 2]}}, "sizes are"),
        ({"model": "GPT"}, "GPTConfig here has no output, sizes.*it needs context, d_model, n_head, n_layer, vocab_size"),
        ({"tokenizer": []}, "A saved tokeniser"),
        ({"tokenizer": {}}, "got None"),
        ({"tokenizer": {"kind": []}}, "A saved tokeniser"),
        ({"tokenizer": {"kind": "char"}}, "characters"),
        ({"tokenizer": CHARACTERS | {"characters": [1]}}, "A saved tokeniser of kind 'char'"),
        ({"tokenizer": CHARACTERS | {"characters": None}}, "A saved tokeniser of kind 'char'"),
        ({"tokenizer": CHARACTERS | {"special": 3}}, "A saved tokeniser of kind 'char'"),
        ({"tokenizer": CHARACTERS | {"newer": 3}}, "A saved tokeniser of kind 'char'"),
        ({"tokenizer": {"kind": "bpe", "model": 3}}, "tokenizer.json"),
        ({"tokenizer": {"kind": "bpe", "model": {"model": {"type": "BPE"}}}}, "tokenizer.json"),
    ],
)
def test_metadata_that_cannot_be(changes, said, tmp_path):
    """Whatever a header holds: a ValueError that names the file."""
    checkpoints.save_model(tmp_path / "a", MLP(MLPConfig((2, 2))))
    arrays, header = checkpoints.load(tmp_path / "a")
    text = changes if isinstance(changes, str) else json.dumps(json.loads(header["chainrule"]) | changes)
    checkpoints.save(tmp_path / "a", arrays, {"chainrule": text})
    with pytest.raises(ValueError, match=said) as raised:
        checkpoints.load_model(tmp_path / "a")
    assert type(raised.value) is ValueError
    assert str(raised.value).startswith(str(tmp_path / "a"))


@pytest.mark.parametrize("dtypes", [(), (int, int), (bool, bool), (np.float64, np.float32), (np.float64, np.int64)])
def test_parameters_have_one_floating_dtype(dtypes, tmp_path):
    checkpoints.save_model(tmp_path / "a", MLP(MLPConfig((2, 2))))
    arrays, header = checkpoints.load(tmp_path / "a")
    arrays = {name: array.astype(dtype) for (name, array), dtype in zip(arrays.items(), dtypes, strict=False)}
    checkpoints.save(tmp_path / "a", arrays, header)
    with pytest.raises(ValueError, match="one floating dtype; got"):
        checkpoints.load_model(tmp_path / "a")


def test_a_token_without_a_row(tmp_path):
    for extra, fits in ((0, True), (1, False)):
        tokenizer = CharTokenizer("abcde"[: CONFIG.vocab_size + extra] + "x" * extra)
        checkpoints.save_model(tmp_path / "a", GPT(CONFIG), tokenizer)
        if fits:
            assert checkpoints.load_model(tmp_path / "a")[1] == tokenizer
        else:
            with pytest.raises(ValueError, match=r"a: the tokenizer has 6 tokens, but the model has rows for 5\."):
                checkpoints.load_model(tmp_path / "a")


def test_numbers_that_are_not_finite_are_kept(tmp_path):
    model = MLP(MLPConfig((2, 2)))
    model.b1.data = np.array([np.nan, np.inf])
    checkpoints.save_model(tmp_path / "a", model)
    assert same_bits(checkpoints.load_model(tmp_path / "a")[0].b1.data, model.b1.data)


def test_a_folder_is_the_run_in_it(tmp_path):
    checkpoints.save_model(tmp_path / checkpoints.CHECKPOINT, MLP(MLPConfig((2, 2))), step=3)
    assert checkpoints.load_run(tmp_path)[1]["step"] == 3
    assert checkpoints.load_model(str(tmp_path))[2]["step"] == 3


def test_any_character_may_be_a_token(tmp_path):
    tokenizer = CharTokenizer("a\ud800名\0")
    checkpoints.save_model(tmp_path / "a", MLP(MLPConfig((2, 2))), tokenizer)
    assert checkpoints.load_model(tmp_path / "a")[1] == tokenizer


def test_without_the_package(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ImportError, match=r'pip install "chainrule\[train\]"'):
        checkpoints.save(tmp_path / "a", {})
