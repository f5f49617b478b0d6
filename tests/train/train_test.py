"""Training as people do it: the same bits on any number of ranks, killed and resumed, stopped, with bad input."""
import json
import os
import pty
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from support import EXACT, HORON, SLACK, SMALL, command, digest, finish, losses, read_log, read_terminal, run, tensors


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.reference = os.path.join(cls.shared.name, "reference")
        cls.reference_losses = losses(run(1, *EXACT, "--hex_loss", "--model_dir", cls.reference))
        cls.reference_digest = digest(cls.reference, 12)

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.at = lambda *names: os.path.join(self.folder.name, *names)

    def tearDown(self):
        self.folder.cleanup()

    def check_end(self, folder):
        self.assertEqual(digest(folder, 12), self.reference_digest)


class SameBits(Runs):
    def test_exact_gives_the_same_bits_on_any_number_of_ranks(self):
        self.assertEqual(len(self.reference_losses), 12)
        for ranks in (2, 3, 4):
            said = run(ranks, *EXACT, "--hex_loss", "--model_dir", self.at(str(ranks)))
            self.assertEqual(losses(said), self.reference_losses)
            self.check_end(self.at(str(ranks)))

    def test_with_replicas_inside_a_process(self):
        said = run(1, *EXACT, "--hex_loss", "--distribution_strategy", "mirrored", "--num_gpus", 2, "--model_dir", self.at("a"))
        self.assertEqual(losses(said), self.reference_losses)
        self.check_end(self.at("a"))
        run(2, *EXACT, "--distribution_strategy", "multi_worker_mirrored", "--num_gpus", 2, "--model_dir", self.at("b"))
        self.check_end(self.at("b"))

    def test_over_gloo_beside_libtorch(self):
        run(2, *EXACT, "--model_dir", self.at("a"), env={"HORON_BACKEND": "gloo"})
        self.check_end(self.at("a"))

    def test_under_mpirun_and_tf_config(self):
        # Two processes of mpirun; two workers of TF_CONFIG with two replicas each.
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        if shutil.which("mpirun.openmpi"):
            subprocess.run(["mpirun.openmpi", "-np", "2", "--oversubscribe", *root, *command(1, *EXACT, "--model_dir", self.at("mpi"))], check=True,
                           capture_output=True, timeout=120)
            self.check_end(self.at("mpi"))
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        workers = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
        for one in sockets:
            one.close()
        line = command(1, *EXACT, "--model_dir", self.at("tf"), "--distribution_strategy", "multi_worker_mirrored", "--num_gpus", 2)
        processes = [subprocess.Popen(line, stdout=subprocess.DEVNULL, env={**os.environ, "TF_CONFIG": json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": i}})}) for i in range(2)]
        self.assertEqual([process.wait(120) for process in processes], [0, 0])
        self.check_end(self.at("tf"))

    def test_remainders_of_one_and_two_samples(self):
        for samples in (97, 98):
            exact = ["--train_samples", samples, "--batch_size", 48, "--learning_rate", 0.1, "--reduction", "exact", "--train_epochs", 2,
                     "--epochs_between_evals", 0]
            one = losses(run(1, *exact, "--hex_loss", "--model_dir", self.at(f"1-{samples}")))
            three = losses(run(3, *exact, "--hex_loss", "--model_dir", self.at(f"3-{samples}")))
            self.assertEqual(one, three)
            self.assertEqual(len(one), {97: 4, 98: 6}[samples])

    def test_fast_is_the_same_from_run_to_run_and_near_on_other_ranks(self):
        arguments = [*SMALL, "--max_number_of_steps", 10, "--model", "lenet", "--learning_rate", 0.02]
        for name, ranks in (("a", 2), ("b", 2), ("c", 1), ("d", 3)):
            run(ranks, *arguments, "--model_dir", self.at(name), "--threads_per_rank", 1)
        self.assertEqual(digest(self.at("a"), 10), digest(self.at("b"), 10))
        one, three = (tensors(self.at(name, "ckpt-00000010", "model.safetensors")) for name in "cd")
        self.assertEqual(one.keys(), three.keys())
        for name in one:  # no batch norm, and dropout by sample: equal but for rounding
            self.assertLess(max(abs(a - b) for a, b in zip(one[name], three[name])), 2e-5, name)


class Kills(Runs):
    SAVING = [*EXACT, "--save_checkpoints_steps", "3", "--keep_checkpoint_max", "2"]

    def test_killed_at_every_step_of_a_save(self):
        places = ["before_folder:2", "before_file:3", "after_file:3", "before_file:4", "after_file:4", "before_manifest:2",
                  "after_manifest:2", "before_rename:2", "after_rename:2", "before_remove:1", "before_file:1", "before_rename:1"]
        # Inside the writing of a file: the lock, the settings, then six files of two checkpoints.
        places += [f"{name}:{n}" for name in ("file_created", "file_written", "file_synced", "file_renamed") for n in (1, 2, 5, 7)]
        for i, place in enumerate(places):
            folder = self.at(place)
            first, second = 1 + i % 3, 1 + (i + 1) % 3
            run(first, *self.SAVING, "--model_dir", folder, env={"HORON_FAILPOINT": place}, code=None)
            self.assertFalse(os.path.exists(os.path.join(folder, "ckpt-00000012")), place)
            run(second, *self.SAVING, "--model_dir", folder)
            self.check_end(folder)
            self.assertEqual([name for name in os.listdir(folder) if "part" in name or "lock" in name], [], place)

    def test_killed_at_random_moments(self):
        chance = random.Random(os.environ.get("HORON_TEST_SEED", "7"))
        for i in range(int(os.environ.get("HORON_TEST_KILLS", "20"))):
            folder = self.at(str(i))
            first, second = [(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b][i % 6]
            process = subprocess.Popen(command(first, *self.SAVING, "--model_dir", folder), stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, start_new_session=True)
            while i % 2 == 0 and process.poll() is None and not (os.path.exists(folder) and any(name.startswith("ckpt-") for name in os.listdir(folder))):
                pass  # every other one at any time after the first checkpoint has begun
            try:
                process.wait(chance.uniform(0.0, 0.3) if i % 2 == 0 else chance.uniform(0.2, 1.2))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            run(second, *self.SAVING, "--model_dir", folder)
            self.check_end(folder)

    def test_a_signal_makes_one_checkpoint_and_says_how_to_go_on(self):
        for ranks in (1, 2):
            folder = self.at(str(ranks))
            arguments = [*EXACT, "--save_checkpoints_epochs", "0", "--hex_loss", "--model_dir", folder]
            process = subprocess.Popen(command(ranks, *arguments, "--max_number_of_steps", "100000"), stdout=subprocess.PIPE, text=True)
            for line in process.stdout:
                if "step 5 loss" in line:
                    process.send_signal(signal.SIGTERM)
                    break
            rest = process.stdout.read()
            self.assertEqual(process.wait(60), 75, rest)
            self.assertIn(f"--model_dir {folder}", rest)
            checkpoints = [name for name in os.listdir(folder) if name.startswith("ckpt-")]
            self.assertEqual(len(checkpoints), 1)
            # The line that was printed is enough: the settings are in the folder.
            line = re.search(r"to resume: horon (.*)", rest).group(1).split()
            step = int(checkpoints[0].removeprefix("ckpt-"))
            done = subprocess.run([HORON, *line, "--max_number_of_steps", str(step + 2)], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"resuming after step {step}", done.stdout)


    def test_a_second_signal_ends_it_at_once(self):
        # Steps of many seconds: nobody waits for the end of one.
        process = subprocess.Popen(command(1, "--model", "resnet_v1_50", "--train_samples", 4000, "--batch_size", 2000, "--model_dir", self.at("a")),
                                   stdout=subprocess.PIPE, text=True)
        process.stdout.readline()  # it has begun
        process.send_signal(signal.SIGTERM)
        while re.search(r"ShdPnd:\s*\S*[4-7c-f]\S{3}$", open(f"/proc/{process.pid}/status").read(), re.M):
            pass  # until it was taken: two that wait would be one
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.assertNotIn(process.wait(60), (0, 75))
        self.assertLess(time.monotonic() - began, 2 * SLACK)
        process.stdout.close()

    def test_one_ctrl_c_on_a_terminal_makes_one_checkpoint(self):
        folder = self.at("a")
        arguments = [*SMALL, "--save_checkpoints_epochs", "0", "--model_dir", folder, "--max_number_of_steps", "100000"]
        child, terminal = pty.fork()
        if child == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored if the tests were started in the background
            os.execv(HORON, command(2, *arguments))
        sent = []

        def interrupt_once(said):
            if not sent and re.search(rb"step \d\d+/", said):
                sent.append(os.write(terminal, b"\x03"))  # to launcher and ranks alike
        said = read_terminal(terminal, interrupt_once)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.assertEqual(status, 75, said[-1500:])
        self.assertEqual(said.count(b"interrupted; to resume"), 1)
        self.assertEqual(len([name for name in os.listdir(folder) if name.startswith("ckpt-")]), 1)


class Faults(Runs):
    def test_a_damaged_checkpoint_is_skipped(self):
        folder = self.at("a")
        run(1, *EXACT, "--save_checkpoints_steps", 4, "--model_dir", folder)
        with open(os.path.join(folder, "ckpt-00000012", "model.safetensors"), "r+b") as file:
            file.seek(5000)
            file.write(b"x")
        said = run(2, *EXACT, "--model_dir", folder)
        self.assertIn("checkpoint 12 is damaged", said)
        self.check_end(folder)

    def test_other_settings_are_refused_by_name(self):
        folder = self.at("a")
        shutil.copytree(self.reference, folder)
        said = run(1, *EXACT, "--model_dir", folder, "--momentum", 0.8, "--max_number_of_steps", 20, code=18)
        self.assertIn("momentum: 0.8 was 0.9", said)
        self.assertIn("threads_per_rank: 2 was 1", run(2, *EXACT, "--model_dir", folder, "--threads_per_rank", 2, code=18))
        self.assertIn("batch_size: 60 was 48", run(2, "--model_dir", folder, "--batch_size_per_replica", 30, code=18))
        run(1, *EXACT, "--model_dir", folder, "--max_number_of_steps", 20)  # longer is fine
        self.assertTrue(os.path.exists(os.path.join(folder, "ckpt-00000020")))

    def test_numbers_that_are_not_finite(self):
        said = run(2, *SMALL, "--max_number_of_steps", 30, "--learning_rate", 1e30, "--model_dir", self.at("a"), code=17)
        self.assertIn("step 2: not finite on rank 0: ", said)
        said = run(1, *SMALL, "--max_number_of_steps", 30, "--learning_rate", 1e30, "--model_dir", self.at("b"), code=17)
        run(1, *SMALL, "--max_number_of_steps", 6, "--learning_rate", 1e30, "--nan_policy", "skip-step", "--model_dir", self.at("c"), code=17)
        for name, values in tensors(self.at("c", "ckpt-00000006", "model.safetensors")).items():
            self.assertTrue(all(value - value == 0 for value in values), name)  # nothing of the skipped steps is left

    def test_a_rank_that_brings_no_numbers_is_named(self):
        bad = {"HORON_FAILPOINT": "nan:1:5"}
        said = run(2, *SMALL, "--max_number_of_steps", 12, "--model_dir", self.at("a"), env=bad, code=17)
        self.assertRegex(said, r"step 5: not finite on rank 1: \d+ value\(s\) of the gradient of '[a-z0-9.]+'; .*no checkpoint was written")
        self.assertNotIn("rank 0:", said)
        # All ranks skip, alike: the replicas are compared at step 100.
        run(2, *SMALL, "--max_number_of_steps", 100, "--nan_policy", "skip-step", "--model_dir", self.at("b"), env=bad)
        for name, values in tensors(self.at("b", "ckpt-00000100", "model.safetensors")).items():
            self.assertTrue(all(value - value == 0 for value in values), name)
        said = run(3, *EXACT, "--model_dir", self.at("c"), env={"HORON_FAILPOINT": "nan:2:4"}, code=17)
        self.assertIn("step 4: not finite on rank 2: ", said)

    def test_a_replica_that_differs_is_named(self):
        said = run(3, *SMALL, "--max_number_of_steps", 100, "--model_dir", self.at("a"), env={"HORON_FAILPOINT": "flip:2:100"}, code=11)
        self.assertIn("step 100: the weights of rank 2 differ from those of rank 0, first in 'conv1.weight'", said)

    def test_a_full_disk_costs_a_checkpoint_not_the_run(self):
        folder = self.at("small")
        os.mkdir(folder)
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1000k", "tmpfs", folder]).returncode != 0:
            self.skipTest("needs root, to make a small disk")
        try:
            said = run(1, *EXACT, "--save_checkpoints_steps", 2, "--keep_checkpoint_max", 1, "--hex_loss", "--model_dir", folder, code=13)
            self.assertIn("No space left", said)
            self.assertEqual(said.count("training continues"), 2)  # the third in a row ends it, before the last step
            self.assertLess(int(losses(said)[-1][0]), 12)
            self.assertEqual([name for name in os.listdir(folder) if name.startswith("ckpt-")], ["ckpt-00000002"])  # whole, and alone
        finally:
            subprocess.run(["umount", folder])


class Commands(Runs):
    def test_evaluation_is_the_same_on_any_number_of_ranks(self):
        found = set()
        for ranks in (1, 3):
            said = run(ranks, *EXACT, "--model_dir", self.reference, what="evaluate")
            found.add(re.search(r"top-1 (\S+) %, top-5 (\S+) %", said).groups())
            self.assertIn("2000 samples", said)
        self.assertEqual(len(found), 1)

    def test_a_checkpoint_brings_its_settings(self):
        run(1, "--model", "lenet", "--train_samples", 60, "--batch_size", 20, "--max_number_of_steps", 3, "--reduction", "exact", "--logical_shards", 2,
            "--model_dir", self.at("a"))
        one = run(3, "--checkpoint_path", self.at("a", "ckpt-00000003"), what="evaluate")  # more ranks than shards
        self.assertIn("lenet on shapes10", one)
        self.assertIn("2000 samples", one)
        # Its weights as the start of another run, in a folder of its own below ./runs.
        done = subprocess.run(command(1, *SMALL, "--model", "lenet", "--max_number_of_steps", 2, "--checkpoint_path", self.at("a", "ckpt-00000003")),
                              cwd=self.at(), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(os.listdir(self.at("runs"))), 1)

    def test_a_new_start_in_an_old_folder(self):
        folder = self.at("a")
        run(1, *EXACT, "--model_dir", folder, "--max_number_of_steps", 40)
        run(1, *EXACT, "--model_dir", folder, "--resume", "never")
        self.check_end(folder)
        self.assertEqual(sorted(name for name in os.listdir(folder) if name.startswith("ckpt-")), ["ckpt-00000005", "ckpt-00000010", "ckpt-00000012"])
        (aside,) = [name for name in os.listdir(folder) if name.startswith("before-")]
        self.assertIn("ckpt-00000040", os.listdir(os.path.join(folder, aside)))

    def test_mistakes_are_one_line(self):
        for arguments, wanted in ((["--lerning_rate", "1"], "did you mean 'learning_rate'"),
                                  (["--ps_hosts", "a"], "parameter servers"),
                                  (["--dgc_momentum_type", "vanilla"], "not implemented yet"),
                                  (["--use_fp16"], "--dtype bf16"),
                                  (["--distribution_strategy", "tpu"], "not implemented yet"),
                                  (["--model", "resnet_tinny"], "did you mean 'resnet_tiny'"),
                                  (["--optimizer", "momentun"], "did you mean 'momentum'"),
                                  (["--batch_size", "0"], "--batch_size: '0'"),
                                  (["--num_gpus", "2", "--distribution_strategy", "OFF"], "mirrored"),
                                  (["--learning_rate_strategy", "5:1,3:2"], "must be greater than"),
                                  (["--dataset", "cifar10", "--data_dir", "/none"], "horon data download cifar10")):
            said = run(1, *arguments, "--model_dir", self.at("x"), code=2)
            self.assertIn(wanted, said)
        self.assertIn("--logical_shards 2", run(3, *SMALL, "--reduction", "exact", "--logical_shards", 2, "--model_dir", self.at("x"), code=None))

    def test_a_config_file_and_what_is_kept(self):
        with open(self.at("c"), "w") as file:
            file.write("train_samples = 100\nmax_number_of_steps = 3  # short\nbatch_size = 20\n")
        run(1, "--config", self.at("c"), "--model_dir", self.at("run"), "--batch_size", 25)
        with open(self.at("run", "config.json")) as file:
            kept = json.load(file)
        self.assertEqual((kept["train_samples"], kept["batch_size"], kept["model"]), (100, 25, "resnet_tiny"))
        self.assertTrue(os.path.exists(self.at("run", "ckpt-00000003", "manifest.json")))

    def test_the_best_weights_are_kept(self):
        run(2, "--train_samples", 400, "--batch_size", 50, "--train_epochs", 4, "--keep_checkpoint_max", 1, "--model_dir", self.at("a"))
        with open(self.at("a", "log.jsonl")) as file:
            scores = {entry["step"]: entry["test_top1"] for entry in map(json.loads, file) if "test_top1" in entry}
        self.assertEqual(sorted(scores), [8, 16, 24, 32])
        best = max(scores, key=scores.get)
        self.assertEqual(os.listdir(self.at("a", "best")), [f"ckpt-{best:08}"])
        said = run(1, "--checkpoint_path", self.at("a", "best", f"ckpt-{best:08}"), what="evaluate")
        self.assertIn(f"top-1 {100 * scores[best]:.2f} %", said)
        # The same by the name of the mode, in any case.
        self.assertIn("2000 samples", run(1, "--run_mode", "EVAL", "--model_dir", self.at("a")))
        self.assertFalse(os.path.exists(self.at("a", "best", "ckpt-00000000")))

    def test_batch_norm_over_all_ranks(self):
        # Whoever has which samples: two ranks do what one does with the whole batch, but for rounding.
        arguments = [*SMALL, "--train_samples", 480, "--max_number_of_steps", 6, "--sync_batch_norm", "--learning_rate", 0.02]
        for ranks in (1, 2):
            run(ranks, *arguments, "--model_dir", self.at(str(ranks)))
        one, two = (tensors(self.at(name, "ckpt-00000006", "model.safetensors")) for name in "12")
        for name in one:
            self.assertLess(max(abs(a - b) for a, b in zip(one[name], two[name])), 2e-4, name)
        self.assertIn("--drop_remainder", run(2, *SMALL, "--train_samples", 98, "--sync_batch_norm", "--model_dir", self.at("x"), code=None))
        self.assertIn("leave one of the two out", run(1, *EXACT, "--sync_batch_norm", "--model_dir", self.at("x"), code=2))

    def test_every_model_and_type_takes_a_step(self):
        for model in ("lenet", "workshop_cnn", "resnet_tiny", "resnet_v1_18", "resnet_v1_20", "resnet_v1_50", "resnet_v1_50_slim", "resnet_v1_56",
                      "resnet_v1_110"):
            run(1, "--model", model, "--train_samples", 8, "--batch_size", 4, "--max_number_of_steps", 2, "--save_checkpoints_steps", 1, "--skip_eval",
                "--model_dir", self.at(model))
            before = tensors(self.at(model, "ckpt-00000001", "model.safetensors"))
            after = tensors(self.at(model, "ckpt-00000002", "model.safetensors"))
            moved = [name for name in before if before[name] != after[name]]
            self.assertGreater(len(moved), len(before) // 2, model)
        run(1, *SMALL, "--dtype", "bf16", "--max_number_of_steps", 2, "--model_dir", self.at("bf16"))


class Learning(unittest.TestCase):
    def test_what_make_run_trains_is_learned(self):
        """And the console, the log and the picture say the same."""
        with tempfile.TemporaryDirectory() as folder:
            said = run(2, "--model_dir", folder)
            top1, top5, loss = map(float, re.search(r"test +top-1 (\S+) %, top-5 (\S+) %, loss (\S+), 2000 samples", said).groups())
            self.assertGreaterEqual(top1, 95)
            entries = read_log(folder)
            last = [entry for entry in entries if "test_top1" in entry][-1]
            self.assertAlmostEqual(100 * last["test_top1"], top1, places=2)
            self.assertAlmostEqual(100 * last["test_top5"], top5, places=2)
            self.assertAlmostEqual(last["test_loss"], loss, places=4)
            self.assertEqual(re.findall(r"epoch +(\d+)\.00 +step +(\d+) +test loss", said), [(str(n), str(79 * n)) for n in range(1, 11)])
            self.assertRegex(said, r"steps +790 \(10\.0 epochs\) in \S+ s, \d+ images/s")
            lines = [line for line in said.splitlines() if re.match(r"\[0\] step \d+/790 ", line)]
            self.assertEqual(len(lines), 790 // 20)
            for line in lines:
                step, epoch, shown, rate = re.search(r"step (\d+)/790 +epoch (\S+) +loss (\S+) +rate (\S+) +\d+ images/s", line).groups()
                entry = next(one for one in entries if one["step"] == int(step) and "loss" in one)
                self.assertAlmostEqual(entry["loss"], float(shown), places=4)
                self.assertAlmostEqual(entry["epoch"], float(epoch), places=2)
                self.assertAlmostEqual(entry["learning_rate"], float(rate), places=4)
            self.check_picture(folder, [entry["test_top1"] for entry in entries if "test_top1" in entry],
                               [entry["loss"] for entry in entries if "loss" in entry])

    def check_picture(self, folder, accuracies, losses_there):
        """The curves in the SVG are those of the log: as many points, up where the numbers are higher."""
        finish([HORON, "plot", folder])
        with open(os.path.join(folder, "curves.svg")) as file:
            curves = [[tuple(map(float, point[1:].split(","))) for point in curve.split()] for curve in re.findall(r'<path d="([^"]+)"', file.read())]
        self.assertEqual([len(curve) for curve in curves[:2]], [len(accuracies), len(losses_there)])
        for curve, values in zip(curves, (accuracies, losses_there)):
            for (a, b), (x, y) in zip(zip(values, values[1:]), zip(curve, curve[1:])):
                self.assertLess(x[0], y[0])
                if abs(a - b) > 0.01:
                    self.assertEqual(a < b, x[1] > y[1], (a, b, x, y))  # y counts downwards


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
