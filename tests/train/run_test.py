"""What a run promises: ranks that agree, lengths and rates as they were given, data that decides and data that tests, a folder of its own."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

from support import EXACT, HORON, SLACK, SMALL, checkpoints, command, config_of, digest, finish, read_log, run, run_differing, tensors


def programs_below(pid):
    """Processes of `horon train` among the descendants of one."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        for child in open(f"/proc/{pid}/task/{task}/children").read().split():
            found += programs_below(child)
            if open(f"/proc/{child}/cmdline", "rb").read().split(b"\0")[1:2] == [b"train"]:
                found.append(int(child))
    return found


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.at = lambda *names: os.path.join(self.folder.name, *names)

    def tearDown(self):
        self.folder.cleanup()


class Agreement(Case):
    def test_settings_that_differ_are_named_before_anything_is_built(self):
        for name, value, other in (("batch_size", 48, 32), ("seed", 1, 7), ("learning_rate", 0.1, 0.2), ("reduction", "fast", "exact"),
                                   ("max_number_of_steps", 4, 6)):
            arguments = [*SMALL, "--max_number_of_steps", 4, "--model_dir", self.at("x"), f"--{name}", value]
            said = run_differing(arguments, [f"--{name}", other], code=11)
            self.assertIn(f"{name}: {value} on rank 0, {other} on rank 1", said)
            self.assertFalse(os.path.exists(self.at("x")), name)
        said = run_differing([*SMALL, "--max_number_of_steps", 4, "--model_dir", self.at("x")], ["--momentum", 0.8], code=11, ranks=3)
        self.assertIn("momentum: 0.9 on ranks 0, 2, 0.8 on rank 1", said)

    def test_settings_of_the_job_that_differ_are_named(self):
        arguments = [*SMALL, "--max_number_of_steps", 2, "--skip_eval", "--model_dir", self.at("x")]
        said = run_differing(arguments, ["--bucket_bytes", "4MB"], code=11)
        self.assertIn("bucket_bytes: 26214400 bytes on rank 0, 4194304 bytes on rank 1", said)
        self.assertFalse(os.path.exists(self.at("x")))
        run_differing(arguments, ["--bucket-bytes", "25600KB", "--log-level", "error"], code=0)

    def test_the_same_in_other_words_is_the_same(self):
        run_differing([*SMALL, "--max_number_of_steps", 2, "--model_dir", self.at("x")],
                      ["--learning_rate", "1e-1", "--seed", 1, "--input_threads", 2], code=0)

    def test_data_that_differs_is_named_and_its_place_does_not_matter(self):
        make = [HORON, "data", "convert", "--dataset", "shapes10", "--samples"]
        for name, samples in (("a", 60), ("b", 60), ("c", 59)):
            for split in ("train", "test"):
                finish([*make, str(samples), "--split", split, "--format", "npy", "--to", self.at(name)])
        arguments = ["--dataset", "npy", "--batch_size", 20, "--train_epochs", 1, "--model", "lenet", "--model_dir", self.at("x")]
        run_differing([*arguments, "--data_dir", self.at("a")], ["--data_dir", self.at("b")], code=0)
        shutil.rmtree(self.at("x"))
        said = run_differing([*arguments, "--data_dir", self.at("a")], ["--data_dir", self.at("c")], code=11)
        self.assertIn("different training data: 60 samples on rank 0, 59 samples on rank 1", said)
        self.assertFalse(os.path.exists(self.at("x", "config.json")))

    def test_a_different_kind_of_cpu_is_an_error_with_exact_and_a_warning_with_fast(self):
        old = "ATEN_CPU_CAPABILITY=default"
        arguments = [*SMALL, "--max_number_of_steps", 2, "--model_dir", self.at("x")]
        said = run_differing([*arguments, "--reduction", "exact"], [], code=11, variable=old)
        self.assertRegex(said, r"LibTorch: \S+, \S+ on rank 0, \S+, \S+ on rank 1")
        self.assertIn("the ranks differ", run_differing(arguments, [], code=0, variable=old))

    def test_a_resumed_run_takes_rank_0s_settings_where_only_it_has_the_folder(self):
        arguments = [*EXACT, "--model", "lenet", "--learning_rate", 0.01]
        run(2, *arguments, "--model_dir", self.at("straight"))
        run(2, *arguments, "--max_number_of_steps", 5, "--model_dir", self.at("x"))
        os.mkdir(self.at("elsewhere"))
        run_differing(["--model_dir", self.at("x"), "--max_number_of_steps", 12], ["--model_dir", self.at("elsewhere", "x")], code=0)
        self.assertEqual(digest(self.at("x"), 12), digest(self.at("straight"), 12))
        self.assertEqual(os.listdir(self.at("elsewhere")), [])

    def test_one_rank_that_evaluates(self):
        said = finish([HORON, "run", "-np", "2", "sh", "-c", f'w=train; [ "$HORON_RANK" = 1 ] && w=evaluate; exec {HORON} $w --model_dir {self.at("x")}'], 11)
        self.assertIn("train on rank 0, evaluate on rank 1", said)


class Signals(Case):
    def end_early(self, line, until, code=75, env=None):
        """SIGTERM when `until` is said; the exit code and what was said."""
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(env or {})})
        timer = threading.Timer(60 * SLACK, process.kill)
        timer.start()
        said = ""
        for piece in process.stdout:
            said += piece
            if until(said, process):
                break
        process.send_signal(signal.SIGTERM)
        said += process.stdout.read()
        self.assertEqual(process.wait(), code, said)
        timer.cancel()
        return said

    def test_a_signal_while_ranks_are_waited_for(self):
        process = subprocess.Popen(command(1, *SMALL, "--model_dir", self.at("x")), stderr=subprocess.PIPE, text=True, env={
            **os.environ, "HORON_RANK": "1", "HORON_SIZE": "2", "HORON_RENDEZVOUS": "127.0.0.1:1", "HORON_INSECURE": "1", "HORON_START_TIMEOUT": "100s"})
        while "signal" not in open(f"/proc/{process.pid}/task/{process.pid}/comm").read() and not any(
                "hrn-signal" in open(f"/proc/{process.pid}/task/{task}/comm").read() for task in os.listdir(f"/proc/{process.pid}/task")):
            self.assertIsNone(process.poll(), process.stderr)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(2 * SLACK), 75, process.stderr.read())
        process.stderr.close()

    def test_a_signal_during_an_evaluation(self):
        # An evaluation of many seconds, after the first epoch of a few samples.
        for ranks in (1, 2):
            folder = self.at(str(ranks))
            line = command(ranks, "--dataset", "synthetic", "--image_size", 96, "--num_classes", 10, "--train_samples", 8, "--batch_size", 8,
                           "--model", "resnet_v1_50", "--preprocessing", "none", "--model_dir", folder, "--train_epochs", 3, "--log_every_n_steps", 1)
            said = self.end_early(line, lambda said, _: "step 1/3" in said)
            self.assertIn("interrupted; to resume", said)
            self.assertNotIn("test loss", said)
            self.assertEqual(len(checkpoints(folder)), 1)

    def test_sigusr1_writes_the_last_operations(self):
        os.mkdir(self.at("flight"))
        line = command(2, *SMALL, "--max_number_of_steps", 100000, "--save_checkpoints_epochs", 0, "--model_dir", self.at("x"), "--log_every_n_steps", 5)

        def until(said, process):
            if "step 5/" not in said:
                return False
            for pid in programs_below(process.pid):
                os.kill(pid, signal.SIGUSR1)
            return "step 40/" in said and len(os.listdir(self.at("flight"))) >= 2
        self.end_early(line, until, env={"HORON_FLIGHT_FOLDER": self.at("flight")})
        self.assertGreaterEqual(len(os.listdir(self.at("flight"))), 2)


    def test_a_signal_during_the_start(self):
        # While LibTorch is loaded, too; only the start of the process itself is not ours.
        for delay in (0.05, 0.1, 0.15, 0.2, 0.3, 0.5):
            process = subprocess.Popen(command(1, *SMALL, "--max_number_of_steps", 100000, "--model_dir", self.at("x")), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            while True:  # until it holds signals
                held = int(re.search(r"SigBlk:\s*(\S+)", open(f"/proc/{process.pid}/status").read()).group(1), 16)
                if held >> (signal.SIGUSR1 - 1) & 1:
                    break
            try:
                process.wait(delay)
            except subprocess.TimeoutExpired:
                pass
            process.send_signal(signal.SIGUSR1)
            process.send_signal(signal.SIGTERM)
            said = process.communicate()[0]
            self.assertEqual(process.returncode, 75, said)

    def test_a_timeline_by_its_flag(self):
        run(2, *SMALL, "--max_number_of_steps", 3, "--skip_eval", "--model_dir", self.at("x"), "--timeline", self.at("trace"))
        files = sorted(name for name in os.listdir(self.at()) if name.startswith("trace"))
        self.assertEqual(len(files), 2, files)  # one a rank
        for name in files:
            with open(self.at(name)) as file:
                self.assertIn('"step sums"', file.read(), name)


    def test_settings_of_the_job_reach_the_runtime(self):
        def sums(name, *flags):  # buckets of gradients that were summed
            run(2, *SMALL, "--model-name", "lenet", "--max_number_of_steps", 3, "--skip-eval", "--train_url", self.at(name),
                "--timeline", self.at(name + "-trace"), *flags)
            with open(self.at(name + "-trace.0")) as file:
                return len(re.findall(r'"name": ?"(?:fc|conv)', file.read()))
        self.assertEqual(sums("a"), 6)  # two a step
        with open(self.at("each"), "w") as file:
            file.write("bucket-bytes = 0\n")
        self.assertEqual(sums("b", "--config", self.at("each")), 24)  # each of the eight tensors alone
        self.assertEqual(sums("c", "--fusion_threshold_mb", 0), 24)

    def test_settings_of_the_job_reach_a_benchmark(self):
        plan = {"what": "scaling", "model": "resnet_v1_20", "batch": 4, "rounds": 1, "threads": 1, "out": self.at("out")}
        finish([HORON, "run", "-np", "2", "--timeline", self.at("t"), "--bucket-bytes", "0", HORON, "bench", "train-rank", json.dumps(plan)])
        with open(self.at("t.0")) as file:
            self.assertIn('"fc.weight"', file.read())  # not in a bucket with fc.bias


class Lengths(Case):
    def test_accumulated_batches_make_whole_epochs(self):
        # 7 batches an epoch, 4 a step: 70 batches are 18 steps, the last one of two.
        run(2, "--train_samples", 70, "--batch_size", 10, "--model", "lenet", "--learning_rate_strategy", "polynomial", "--train_epochs", 10,
            "--backward_passes_per_step", 4, "--epochs_between_evals", 0, "--log_every_n_steps", 1, "--model_dir", self.at("a"))
        steps = [entry for entry in read_log(self.at("a")) if "learning_rate" in entry]
        self.assertEqual((steps[-1]["step"], steps[-1]["epoch"]), (18, 10.0))
        self.assertLess(steps[-1]["learning_rate"], 0.04 * steps[0]["learning_rate"])
        # A step goes the same way as one with the same 40 samples in one batch.
        for name, more in (("b", ["--backward_passes_per_step", 4]), ("c", ["--batch_size", 40])):
            run(2, "--train_samples", 70, "--batch_size", 10, "--model", "lenet", "--learning_rate", 0.01, "--max_number_of_steps", 1, "--skip_eval",
                "--log_every_n_steps", 1, "--model_dir", self.at(name), *more)
        b, c = (tensors(self.at(name, "ckpt-00000001", "model.safetensors")) for name in "bc")
        for name in b:
            self.assertLess(max(abs(x - y) for x, y in zip(b[name], c[name])), 1e-5, name)

    def test_a_finished_run_is_extended(self):
        run(1, "--train_samples", 200, "--batch_size", 50, "--train_epochs", 2, "--skip_eval", "--log_every_n_steps", 1, "--model_dir", self.at("a"))
        run(1, "--model_dir", self.at("a"), "--train_epochs", 4)
        rates = {entry["step"]: entry["learning_rate"] for entry in read_log(self.at("a")) if "learning_rate" in entry}
        self.assertEqual(len(rates), 16)
        self.assertTrue(all(rates[step] > 0.01 for step in range(9, 16)), rates)
        # Stages that have come to nothing are no way to go on; more of them are.
        stages = ["--train_samples", 200, "--batch_size", 50, "--learning_rate_strategy", "1:0.1,2:0.1->0", "--skip_eval"]
        run(1, *stages, "--train_epochs", 2, "--model_dir", self.at("b"))
        self.assertIn("nothing would be learned", run(1, "--model_dir", self.at("b"), "--train_epochs", 4, code=2))
        run(1, "--model_dir", self.at("b"), "--train_epochs", 4, "--learning_rate_strategy", "1:0.1,2:0.1->0,4:0.01", "--log_every_n_steps", 1)
        self.assertAlmostEqual(read_log(self.at("b"))[-1]["learning_rate"], 0.01)
        self.assertIn("learning_rate_strategy", run(1, "--model_dir", self.at("b"), "--train_epochs", 6, "--learning_rate_strategy", "9:0.3", code=18))

    def test_a_length_that_is_given_replaces_the_one_before(self):
        arguments = ["--train_samples", 100, "--batch_size", 50, "--model", "lenet", "--learning_rate", 0.01, "--skip_eval", "--model_dir", self.at("a")]
        run(1, *arguments, "--max_number_of_steps", 3)
        run(1, "--model_dir", self.at("a"), "--train_epochs", 4)
        self.assertEqual(checkpoints(self.at("a"))[-1], "ckpt-00000008")
        run(1, "--model_dir", self.at("a"), "--max_number_of_steps", 9)
        self.assertEqual(checkpoints(self.at("a"))[-1], "ckpt-00000009")
        self.assertIn("give one of the two", run(1, "--model_dir", self.at("a"), "--max_number_of_steps", 9, "--train_epochs", 9, code=2))

    def test_an_exponential_warm_up_bends_the_first_stage(self):
        run(1, "--train_samples", 100, "--batch_size", 50, "--model", "lenet", "--learning_rate_strategy", "5:0.001->0.4", "--lr_warmup_strategy",
            "exponential", "--train_epochs", 3, "--skip_eval", "--log_every_n_steps", 1, "--model_dir", self.at("a"))
        rates = {entry["step"]: entry["learning_rate"] for entry in read_log(self.at("a"))}
        self.assertAlmostEqual(rates[5], 0.001 * 400 ** 0.4, places=9)  # of the step that begins at epoch 2

    def test_lines_come_as_often_as_they_were_asked_for(self):
        said = run(1, *SMALL, "--model", "lenet", "--max_number_of_steps", 30, "--log_every_n_steps", 10, "--model_dir", self.at("a"))
        self.assertEqual(re.findall(r"^step (\d+)/30", said, re.M), ["10", "20", "30"])


class Data(Case):
    def make(self, name, split, to, samples, out_split=None):
        place = self.at(name)
        finish([HORON, "data", "convert", "--dataset", "shapes10", "--samples", str(samples), "--split", split, "--format", to, "--to", place])
        if out_split:
            for file in os.listdir(place):
                if file.startswith(split):
                    os.rename(os.path.join(place, file), os.path.join(self.at(name), out_split + file[len(split):]))

    def test_validation_data_decides_and_test_data_is_scored_at_the_end(self):
        self.make("d", "test", "tfrecord", 60, "validation")
        self.make("d", "test", "tfrecord", 40, "eval")
        self.make("d", "train", "tfrecord", 200)
        run(2, "--dataset", "tfrecord", "--data_dir", self.at("d"), "--num_classes", 10, "--model", "lenet", "--batch_size", 50, "--train_epochs", 3,
            "--learning_rate", 0.02, "--model_dir", self.at("a"))
        log = read_log(self.at("a"))
        validated = {entry["step"]: entry["validation_top1"] for entry in log if "validation_top1" in entry}
        self.assertEqual(sorted(validated), [4, 8, 12])
        self.assertEqual([entry["step"] for entry in log if "test_top1" in entry], [12])
        best = max(validated, key=validated.get)
        self.assertEqual(os.listdir(self.at("a", "best")), [f"ckpt-{best:08}"])
        self.assertIn("40 samples", run(1, "--model_dir", self.at("a"), what="evaluate"))
        # A part that is cut off the training set plays the same role.
        said = run(1, *SMALL, "--model", "lenet", "--validation_split", 30, "--max_number_of_steps", 4, "--model_dir", self.at("b"))
        self.assertRegex(said, r"validation +top-1 .* 30 samples\n +test +top-1 .* 2000 samples")

    def test_without_test_data(self):
        self.make("d", "train", "image_folder", 40)
        for place in (self.at("d"), self.at("d", "train") + "/"):
            said = run(1, "--dataset", "image_folder", "--data_dir", place, "--batch_size", 20, "--train_epochs", 1, "--model_dir", self.at("x"), "--resume", "never")
            self.assertIn("no test: there is no test", said)
        self.assertIn("no test: there is no test", run(1, *SMALL, "--skip_eval", "--max_number_of_steps", 2, "--model_dir", self.at("y")))

    def test_size_and_recipe_are_the_datas_own(self):
        self.make("d", "train", "image_folder", 60)
        self.make("d", "test", "image_folder", 20)
        said = run(1, "--dataset", "image_folder", "--data_dir", self.at("d"), "--batch_size", 20, "--train_epochs", 1, "--model_dir", self.at("x"))
        self.assertIn("images 32x32, 10 classes, recipe 'cifar'", said)
        kept = config_of(self.at("x"))
        self.assertEqual((kept["image_size"], kept["num_classes"], kept["preprocessing"]), (32, 10, "cifar"))
        self.assertGreater(kept["resolved"]["threads_per_rank"], 0)

    def test_a_run_that_goes_on_with_other_data_is_refused(self):
        self.make("d", "train", "image_folder", 32)
        arguments = ["--dataset", "image_folder", "--data_dir", self.at("d"), "--batch_size", 10, "--skip_eval", "--model_dir", self.at("x")]
        run(1, *arguments, "--train_epochs", 1)
        folder = next(entry.path for entry in os.scandir(self.at("d", "train")) if len(os.listdir(entry.path)) > 1)
        os.remove(os.path.join(folder, os.listdir(folder)[0]))
        said = run(1, "--model_dir", self.at("x"), "--train_epochs", 2, code=18)
        self.assertIn("training data: 31 samples, there were 32", said)

    def test_corrupt_records_are_reported_and_memory_is_shown(self):
        self.make("d", "train", "image_folder", 40)
        folder = next(entry.path for entry in os.scandir(self.at("d", "train")) if os.listdir(entry.path))
        victim = os.path.join(folder, sorted(os.listdir(folder))[0])
        with open(victim, "r+b") as file:
            file.truncate(os.path.getsize(victim) // 2)
        arguments = ["--dataset", "image_folder", "--data_dir", self.at("d"), "--image_size", 32, "--batch_size", 10, "--skip_eval", "--train_epochs", 3]
        said = run(2, *arguments, "--max_corrupt_records", 1, "--model_dir", self.at("x"))
        self.assertRegex(said, rf"skipped +1 corrupt record\(s\): .*{os.path.basename(victim)}")
        self.assertRegex(said, r"input +\S+ [KM]B of memory")
        self.assertIn(os.path.basename(victim), run(2, *arguments, "--model_dir", self.at("y"), code=12))


    def test_images_too_small_for_the_model_give_one_line_without_a_trace(self):
        for model, size in (("workshop_cnn", 8), ("lenet", 3)):
            said = run(1, "--dataset", "synthetic", "--num_classes", 4, "--image_size", size, "--model", model, "--train_samples", 8, "--batch_size", 4,
                       "--skip_eval", "--model_dir", self.at("x"), code=2)
            self.assertIn(f"the model cannot take images of 3x{size}x{size}", said)
            self.assertNotIn("frame #", said)


class Folders(Case):
    def test_evaluation_takes_the_runs_own_weights(self):
        base = ["--train_samples", 100, "--batch_size", 50, "--model", "lenet", "--learning_rate", 0.02, "--skip_eval"]
        run(1, *base, "--max_number_of_steps", 4, "--model_dir", self.at("a"))
        run(1, *base, "--max_number_of_steps", 30, "--model_dir", self.at("fine"), "--checkpoint_path", self.at("a", "ckpt-00000004"))

        def score(*arguments):
            return re.search(r"top-1 \S+ %, top-5 \S+ %, loss (\S+),", run(1, *arguments, what="evaluate")).group(1)
        own = score("--checkpoint_path", self.at("fine", "ckpt-00000030"))
        self.assertNotEqual(own, score("--checkpoint_path", self.at("a", "ckpt-00000004")))
        self.assertEqual(own, score("--model_dir", self.at("fine")))
        self.assertEqual(own, score("--model_dir", self.at("a"), "--checkpoint_path", self.at("fine", "ckpt-00000030")))

    def test_a_run_started_anew_in_a_folder_can_be_resumed(self):
        base = [*SMALL, "--model", "lenet", "--model_dir", self.at("a")]
        run(1, *base, "--max_number_of_steps", 6)
        run(1, *base, "--max_number_of_steps", 5, "--resume", "never")
        said = run(1, "--model_dir", self.at("a"), "--max_number_of_steps", 7)  # the line that is printed
        self.assertIn("resuming after step 5", said)

    def test_one_run_at_a_time(self):
        line = command(1, *SMALL, "--model_dir", self.at("a"), "--max_number_of_steps", 100000, "--log_every_n_steps", 1)
        process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        while not process.stdout.readline().startswith("step"):
            self.assertIsNone(process.poll())
        said = run(2, *SMALL, "--model_dir", self.at("a"), "--max_number_of_steps", 100000, code=2)
        self.assertIn(f"written by another run: host {os.uname().nodename}, process {process.pid}", said)
        process.kill()
        process.stdout.close()
        process.wait()
        run(1, *SMALL, "--model_dir", self.at("a"), "--max_number_of_steps", 2, "--resume", "never")  # its owner is dead
        self.assertFalse(os.path.exists(self.at("a", "run.lock")))

    def test_what_is_not_finite_ends_with_its_own_code(self):
        arguments = [*SMALL, "--max_number_of_steps", 6, "--learning_rate", 1e30]
        for ranks in (1, 2):
            said = run(ranks, *arguments, "--model_dir", self.at(f"a{ranks}"), code=17)
            self.assertIn("step 2: not finite on rank 0", said)
            self.assertIn("no checkpoint was written", said)
        said = run(2, *arguments, "--nan_policy", "skip-step", "--model_dir", self.at("b"), code=17)
        self.assertIn("the loss on the test set is not finite", said)
        said = run(1, *arguments, "--nan_policy", "skip-step", "--skip_eval", "--model_dir", self.at("e"), code=17)
        self.assertIn("the loss on the training set is not finite", said)
        said = run(1, *arguments, "--nan_policy", "skip-step", "--max_number_of_steps", 100, "--model_dir", self.at("c"), code=17)
        self.assertIn("as on the 19 steps before it", said)
        arguments = [*SMALL, "--max_number_of_steps", 12, "--save_checkpoints_steps", 3, "--model_dir", self.at("d")]
        said = run(2, *arguments, env={"HORON_FAILPOINT": "nan:1:8"}, code=17)
        self.assertRegex(said, r"the last good checkpoint is \S+ckpt-00000006")

    def test_settings_files(self):
        run(1, *SMALL, "--model", "lenet", "--max_number_of_steps", 3, "--model_dir", self.at("a"))
        run(1, "--config", self.at("a", "config.json"), "--model_dir", self.at("b"))  # the same once more
        self.assertEqual(digest(self.at("a"), 3), digest(self.at("b"), 3))
        with open(self.at("c"), "w") as file:
            file.write("optimizer = Adam\nmomentum = 5\n")
        self.assertIn(f"{self.at('c')}:2: momentum: '5': allowed is 0 to 0.9999", run(1, "--config", self.at("c"), code=2))


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
