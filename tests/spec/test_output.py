from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kvproof.spec.exits import UserError
from kvproof.spec.output import OutputError, check_writable, make_folder, write_atomically


def test_text_is_written_as_it_is(tmp_path):
    write_atomically(tmp_path / "x", "a\r\nb\nü\n")
    assert (tmp_path / "x").read_bytes() == "a\r\nb\nü\n".encode()
    assert os.listdir(tmp_path) == ["x"]


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path):
    write_atomically(tmp_path / "x", "")
    (tmp_path / "y").touch()
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == stat.S_IMODE((tmp_path / "y").stat().st_mode)


def test_a_replaced_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    path.chmod(0o640)
    write_atomically(path, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)


def test_a_link_keeps_pointing_where_it_points(tmp_path):
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_failure_half_way_leaves_the_old_contents(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="no space left on device"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_text_that_cannot_be_encoded_leaves_the_old_contents(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_a_device_is_written_to_and_not_replaced():
    write_atomically("/dev/null", "text")
    check_writable("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("act", [lambda path: write_atomically(path, "text"), check_writable], ids=["write", "check"])
class TestUnwritable:
    def test_missing_folder(self, tmp_path, act):
        with pytest.raises(OutputError, match="does not exist; create it first"):
            act(tmp_path / "no" / "x")
        assert os.listdir(tmp_path) == []

    def test_folder(self, tmp_path, act):
        with pytest.raises(OutputError, match="it is a folder; name a file"):
            act(tmp_path)

    def test_file_in_place_of_a_folder(self, tmp_path, act):
        (tmp_path / "file").touch()
        with pytest.raises(OutputError):
            act(tmp_path / "file" / "x")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_folder_without_permission(self, tmp_path, act):
        tmp_path.chmod(0o500)
        with pytest.raises(OutputError, match="permission denied"):
            act(tmp_path / "x")

    @pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs a folder where nothing can be created")
    def test_folder_where_nothing_can_be_created(self, act):
        with pytest.raises(OutputError):
            act("/proc/x")
        assert not Path("/proc/x").exists()

    def test_the_error_names_what_the_caller_named(self, tmp_path, act):
        path = tmp_path / "no" / "x"
        with pytest.raises(UserError) as caught:
            act(path)
        assert str(caught.value).startswith(f"{path}: cannot be written: ")


def test_checking_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "x")
    assert os.listdir(tmp_path) == []
    (tmp_path / "x").write_text("old")
    check_writable(tmp_path / "x")
    assert (tmp_path / "x").read_text() == "old"


def test_a_folder_is_made_with_its_parents(tmp_path):
    assert make_folder(tmp_path / "a" / "b").is_dir()
    assert make_folder(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="it is not a folder; name a folder"):
        make_folder(tmp_path / "file")
    with pytest.raises(OutputError):
        make_folder(tmp_path / "file" / "below")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc")
def test_a_folder_that_is_there_and_takes_no_files_is_not_said_to_be_missing():
    with pytest.raises(OutputError, match="choose a place where you may write") as refused:
        write_atomically("/proc/page.md", "text")
    assert "does not exist" not in str(refused.value)
    with pytest.raises(OutputError, match="choose a place where you may write"):
        check_writable("/proc/page.md")
