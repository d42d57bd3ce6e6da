"""'engine inspect' of jobs of three ranks: one does not come or is stopped, or all are killed; and what they leave."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from engine_dp._library import program

RANKS = pathlib.Path(__file__).with_name("ranks_hung.py")


class Inspect(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.flight = pathlib.Path(folder.name, "flight")
        self.env = {**os.environ, "ENGINE_FLIGHT": str(self.flight), "TZ": "UTC"}

    def inspect(self, *words, code=0):
        done = subprocess.run([program(), "inspect", *words], capture_output=True, text=True, timeout=30, env=self.env)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def groups(self):
        return json.loads(self.inspect("--json"))["groups"]

    def launch(self, part):
        job = subprocess.Popen([program(), "launch", "-n", "3", sys.executable, RANKS, part], env=self.env,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        return job

    def hung(self, part):
        """Starts the job and waits until ranks 0 and 2 are in the call to which rank 1 does not come."""
        job = self.launch(part)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            inside = [r["rank"] for g in self.groups() if g["label"] == "hung job" for r in g["ranks"]
                      if r.get("call", {}).get("bytes") == 1 << 20 and r["call"]["open"]]
            if inside == [0, 2]:
                return job
            self.assertIsNone(job.poll(), job.stdout.read() if job.poll() is not None else "")
            time.sleep(0.05)
        self.fail(self.inspect())

    def world(self):
        return next(g for g in self.groups() if g["size"] == 3)

    def test_a_rank_that_does_not_come(self):
        began = time.time()
        job = self.hung("late")
        time.sleep(1)
        world = self.world()
        self.assertEqual([r["call"]["number"] for r in world["ranks"]], [5, 4, 5])
        self.assertEqual([r["call"]["name"] for r in world["ranks"]], ["all_reduce"] * 3)
        self.assertEqual([r["call"]["bytes"] for r in world["ranks"]], [1 << 20, 4000, 1 << 20])
        self.assertEqual([r["state"] for r in world["ranks"]], ["runs"] * 3)
        for r in (0, 2):
            self.assertTrue(1 <= world["ranks"][r]["call"]["age_s"] <= time.time() - began)
        pids = [r["pid"] for r in world["ranks"]]
        listed = self.inspect()
        self.assertIn(f"group {world['name']}, hung job: opened ", listed)
        self.assertIn("ranks_hung.py late\n", listed)
        self.assertIn(f"group {world['name']}.1-0, split 1, color 0: opened", listed)  # ranks 0 and 1
        said = "ranks 0, 2 entered all_reduce 5 (1.0 MB), rank 1 did not; the longest wait there: "
        self.assertIn(said, listed)
        for word in (str(pids[2]), world["name"]):
            text = self.inspect(word)
            self.assertIn(said, text)
            self.assertRegex(text, rf"rank 0 \(pid {pids[0]} on \S+\) is in all_reduce 5 \(1.0 MB\) for \d+\.\d s, "
                                   r"since \d\d:\d\d:\d\d")
            self.assertRegex(text, rf"rank 1 \(pid {pids[1]} on \S+\) was last in all_reduce 4 \(3.9 KB\), done; it "
                                   r"has not entered all_reduce 5 \(1.0 MB\), where ranks 0, 2 waited")
            self.assertRegex(text, r"before: all_reduce 3 \(3.9 KB\) \d+ \S+, all_reduce 2 ")
        self.assertEqual(f"group {world['name']}.1-0" in self.inspect(str(pids[2])), False)  # rank 2 is not in it
        self.assertIn("no group or process", self.inspect("999999999", code=66))
        for file in self.flight.rglob("*.bin"):
            self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.flight.stat().st_mode & 0o777, 0o700)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        job.wait()
        text = self.inspect(str(pids[0]))
        self.assertIn("killed: ranks 0, 1, 2\n", text)
        self.assertIn("ranks 0, 2 entered all_reduce 5 (1.0 MB), rank 1 did not", text)
        self.assertIn("which never ended", text)

    def test_ranks_that_wait_for_messages(self):
        job, waits, end = self.launch("messages"), [], time.monotonic() + 60
        while [(w.get("peer"), w.get("tag")) for w in waits] != [(1, 7), (0, 3), (-1, 8)]:
            self.assertTrue(time.monotonic() < end and job.poll() is None, waits)
            time.sleep(0.05)
            waits = [r.get("waits", {}) for g in self.groups() if g["size"] == 3 for r in g["ranks"]]
        self.assertEqual([(w["name"], w["bytes"], w["open"]) for w in waits],
                         [("recv", 4000, True), ("recv", 200, True), ("recv", 1, True)])
        pids = [r["pid"] for r in self.world()["ranks"]]
        time.sleep(0.2)
        since = r"for \d+\.\d s, since \d\d:\d\d:\d\d"
        for text in (self.inspect(), self.inspect(str(pids[1]))):
            self.assertRegex(text, rf"\nrank 0 waits for a message of 3.9 KB with tag 7 from rank 1 {since}; rank 1 has sent it "
                                   r"nothing with this tag, and waits in recv from rank 0, tag 3 \(200 B\)\n")
            self.assertRegex(text, rf"\nrank 1 waits for a message of 200 B with tag 3 from rank 0 {since}; rank 0 has sent it "
                                   r"nothing with this tag, and waits in recv from rank 1, tag 7 \(3.9 KB\)\n")
            self.assertRegex(text, rf"\nrank 2 waits for a message of 1 B with tag 8 from any rank {since}\n")
            self.assertIn("communication lane: all finished all_reduce 4 (3.9 KB)\n", text)
        self.assertRegex(text, rf"rank 1 \(pid {pids[1]} on \S+\) is in recv from rank 0, tag 3 \(200 B\) {since}")
        self.assertRegex(text, r"before: recv from rank 2, tag 6 \(3.9 KB\) \d+ \S+, ")
        self.assertRegex(text, r"before: send to rank 1, tag 6 \(3.9 KB\) \d+ \S+, all_reduce 4 ")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        job.wait()
        self.assertRegex(self.inspect(str(pids[0])), r"rank 0 waited for a message .* and waited in recv from rank 0, tag 3")

    def test_a_stopped_rank(self):
        self.hung("stopped")
        text = self.inspect(self.world()["name"])
        self.assertIn("running: ranks 0, 2\nstopped: rank 1\n", text)
        self.assertIn("ranks 0, 2 entered all_reduce 5 (1.0 MB), rank 1 did not", text)
        self.assertRegex(text, r"rank 1 \(pid \d+ on \S+, stopped\) was last in all_reduce 4")
        self.assertEqual([r["state"] for r in self.world()["ranks"]], ["runs", "stopped", "runs"])

    def test_what_ends_well_leaves_nothing(self):
        for part in ("closes", "exits"):
            self.assertEqual(self.launch(part).wait(60), 0)
            self.assertEqual(list(self.flight.iterdir()), [], part)
        self.assertIn("no group is recorded", self.inspect())

    def test_old_ones_make_room(self):
        job = self.hung("late")
        for r in self.world()["ranks"]:
            os.kill(r["pid"], signal.SIGKILL)
        job.wait()
        name = self.world()["name"]
        each = sum(f.stat().st_size for f in (self.flight / name).iterdir())
        for k in range(60):
            shutil.copytree(self.flight / name, self.flight / f"copy{k}")
        listed = self.inspect()
        self.assertEqual(listed.count("flight recorder: "), 3)
        self.assertIn("\n59 older, which have ended", listed)
        self.assertEqual(self.launch("closes").wait(60), 0)
        left = sum(f.stat().st_size for f in self.flight.rglob("*.bin"))
        self.assertTrue(8 << 20 <= left < (8 << 20) + each, left)

    def test_a_folder_that_others_may_write_is_not_used(self):
        self.flight.mkdir()
        self.flight.chmod(0o777)
        job = self.launch("closes")
        self.assertIn("no flight recorder: ", job.communicate(timeout=60)[0])
        self.assertEqual(job.returncode, 0)
        self.assertEqual(list(self.flight.iterdir()), [])
        self.env["ENGINE_FLIGHT"] = ""
        job = self.launch("closes")
        self.assertNotIn("flight", job.communicate(timeout=60)[0])
        self.assertIn("no group is recorded", self.inspect())

    def test_what_is_no_recording_is_left_out(self):
        bad = self.flight / "bad"
        bad.mkdir(parents=True)
        (bad / "rank0.bin").write_bytes(bytes(range(256)) * 40)
        (bad / "rank1.bin").symlink_to("/dev/zero")
        os.mkfifo(bad / "rank2.bin")
        (self.flight / "x").write_text("no folder")
        self.assertIn("no group is recorded", self.inspect())


if __name__ == "__main__":
    unittest.main()
