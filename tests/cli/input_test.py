"""Bad input to the program: one line that says what and where, exit code 2, and nothing is started."""
import json
import os
import re
import socket
import subprocess
import tempfile
import unittest

HORON = os.path.join(os.environ["HORON_BIN"], "horon")
STARTED = ["touch", "started"]  # a program that leaves a trace


class InputTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def at(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.at(name), "w") as file:
            file.write(text)
        return name

    def horon(self, *arguments, env=None, program=HORON):
        variables = {name: value for name, value in os.environ.items() if not name.startswith("HORON_")}
        return subprocess.run([program, *arguments], cwd=self.folder, env={**variables, **(env or {})}, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60)

    def refuse(self, *arguments, says, env=None, code=2):
        """`says`: words that the one line must have."""
        done = self.horon(*arguments, env=env)
        called = f"{env or ''} horon {' '.join(arguments)}: {done.returncode} {done.stdout}{done.stderr}"
        self.assertEqual(done.returncode, code, called)
        self.assertEqual(done.stderr.count("\n"), 1, called)
        self.assertEqual(done.stdout, "", called)
        for word in [says] if isinstance(says, str) else says:
            self.assertIn(word, done.stderr, called)
        self.assertFalse(os.path.exists(self.at("started")), called)

    def refuse_run(self, *flags, says, env=None):
        self.refuse("run", "-np", "2", *flags, *STARTED, says=says, env=env)

    def lacks_part(self, name):
        return any(line.split()[:2] == [name, "absent:"] for line in self.accept("info").splitlines())

    def accept(self, *arguments, env=None):
        done = self.horon(*arguments, env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout


class Settings(InputTest):
    def test_unknown_words_of_settings_are_refused(self):
        for flag, bad, near in (("--backend", "shmem", "'shm'"), ("--cross-backend", "glo", "'gloo'"),
                                ("--log-level", "inof", "'info'"), ("--log-level", "loud", "debug, info"),
                                ("--algorithm", "all_reduce=two_shto", "'all_reduce=two_shot'"),
                                ("--algorithm", "all_reduce=direct,broadcast=flat", "all_reduce=two_shot"),
                                ("--algorithm", "all_reduce", "all_reduce=two_shot"),
                                ("--backend", "", "auto, self"), ("--insecure=maybe", None, "maybe")):
            given = [flag] if bad is None else [flag, bad]
            with self.subTest(flag=flag, bad=bad):
                self.refuse_run(*given, says=[flag.split("=")[0], near])
                for command in (["info"], ["demo"], ["bench", "launch"], ["bench", "runtime"]):
                    self.refuse(*command, *given, says=[flag.split("=")[0], near])

    def test_values_out_of_range_are_refused(self):
        for flag, bad in (("--spin", "foo"), ("--spin", "-3"), ("--spin", "1000001"), ("--spin", "1.5"),
                          ("--timeout", "0"), ("--timeout", "-5"), ("--timeout", "soon"), ("--timeout", "366d"),
                          ("--start-timeout", "0ms"), ("--stall-warning-time", "0"), ("--stall-shutdown-time", "0"),
                          ("--heap-bytes", "1KB"), ("--heap-bytes", "8PB"), ("--heap-bytes", "-1"), ("--heap-bytes", "lots"),
                          ("--inline-bytes", "10GB"), ("--inline-bytes", "1"), ("--bucket-bytes", "5PB"),
                          ("--first-bucket-bytes", "x"), ("--chunk-bytes", "-16MB"), ("--chunk-bytes", "10"),
                          ("--rendezvous", "here"), ("--rendezvous", "here:0"), ("--rendezvous", "here:port")):
            with self.subTest(flag=flag, bad=bad):
                self.refuse_run(flag, bad, says=[flag, f"'{bad}'"])
                self.refuse("info", flag, bad, says=[flag, f"'{bad}'"])

    def test_invalid_variables_are_named(self):
        self.refuse_run(env={"HORON_BACKEND": "shmem"}, says=["HORON_BACKEND (environment)", "'shm'"])
        self.refuse_run(env={"HORON_SPIN": "fast"}, says=["HORON_SPIN (environment)", "0 to 1000000"])
        self.refuse_run(env={"HORON_INSECURE": "perhaps"}, says="HORON_INSECURE (environment)")
        self.refuse_run("-x", "HORON_BACKEND=shmem", says=["HORON_BACKEND", "'shm'"])
        self.refuse("info", env={"HORON_BACKEND": "shmem"}, says=["HORON_BACKEND (environment)", "'shm'"])

    def test_errors_in_settings_files_name_the_line(self):
        for text, says in (("backend = shm\n\n# so\nbackend = shmem\n", ["settings:4", "backend", "'shm'"]),
                           ("tiemout = 5s\n", ["settings:1", "'timeout'"]),
                           ("\nspin = -1  # no\n", ["settings:2", "spin", "'-1'"]),
                           ("timeout 5s\n", ["settings:1", "name = value"]),
                           ("timeline = \"a b\n", ["settings:1", "quote"]),
                           ("timeline = \"a\" b\n", ["settings:1", "quote"])):
            with self.subTest(text=text):
                file = self.write("settings", text)
                self.refuse_run("--config", file, says=says)
                self.refuse_run(env={"HORON_CONFIG": file}, says=says)
                self.refuse("info", "--config", file, says=says)
        self.refuse_run("--config", "nowhere", says="'nowhere'")
        self.refuse_run("--config", "", says="''")
        for flag in ("--knobs", "--knobs-md", "--algorithms"):
            self.refuse("info", flag, "--config", "nowhere", says="'nowhere'")

    def test_algorithms_that_nobody_has(self):
        for bad in ("all_reduce=magic", "all_to_all=inline", "all_reduce=two_shot,broadcast=two_shot"):
            self.refuse_run(env={"HORON_ALGORITHM": bad}, says=["HORON_ALGORITHM", bad.split(",")[-1]])

    def test_algorithms_that_the_backend_lacks(self):
        for backend, lacks, has in (("shm", "all_reduce=two_shot", "all_reduce=in_place, all_reduce=windows"),
                                    ("gloo", "broadcast=two_level", "broadcast=tree, broadcast=scatter"),
                                    ("hier", "all_reduce=one_shot", "all_reduce=two_level, all_reduce=flat")):
            says = [f"{backend} has no {lacks}; it has ", has]
            self.refuse_run("--backend", backend, "--algorithm", lacks, says=says)
            self.refuse("bench", "allreduce", "--backends", backend, "--algorithm", lacks, says=says)
        self.refuse("demo", "--algorithm", "all_reduce=two_shot", says=["has no all_reduce=two_shot; it has "])

    def test_algorithms_are_printed_as_published(self):
        shown = self.accept("info", "--algorithms", "--parts", "/nowhere", "--inline-bytes", "4KB")
        self.assertIn("nccl (absent", shown)
        self.assertRegex(shown, r"all_reduce +cpu +any +4 KB +inline")
        knobs = self.accept("info", "--knobs-md")
        allowed = re.findall(r"\b\w+=\w+", re.search(r"\| `algorithm` .*", knobs)[0].split("|")[5])
        for one in allowed:
            operation, algorithm = one.split("=")
            self.assertRegex(shown, rf"(?m)^  {operation}( exact)? +(cpu|cuda) .* {algorithm}\b")

    def test_words_in_any_case_and_quotes(self):
        file = self.write("settings", "backend = SHM\nlog_level = \"Warning\"\ntimeline = 'a # b'\ntimeout=\"7s\" # so\n"
                                      "algorithm = ALL_REDUCE=two_shot, broadcast=Tree\ninsecure = True\n")
        knobs = self.accept("info", "--knobs", "--config", file)
        for line in (r"backend +shm +file", r"log_level +warning +file", r"timeline +a # b +file", r"timeout +7s +file",
                     r"algorithm +all_reduce=two_shot,broadcast=tree +file", r"insecure +true +file"):
            self.assertRegex(knobs, line)
        self.assertRegex(self.accept("info", "--knobs", "--backend", "Gloo"), r"backend +gloo +command line")
        self.assertRegex(self.accept("info", "--knobs", env={"HORON_BACKEND": "HIER"}), r"backend +hier +environment")

    def test_the_file_reaches_the_ranks(self):
        """Also on hosts that do not have it: as variables."""
        file = self.write("settings", "timeout = 7s\nbackend = SHM\nspin = 3\n")
        script = "echo $HORON_TIMEOUT $HORON_BACKEND $HORON_SPIN"
        for flags, env in ((["--config", file], {}), ([], {"HORON_CONFIG": file})):
            out = self.accept("run", "-np", "1", "--spin", "4", *flags, "sh", "-c", f"cd / && {HORON} info --knobs && {script}",
                              env={**env, "HORON_BACKEND": "gloo"})
            self.assertIn("7s gloo 4", out)
            self.assertRegex(out, r"timeout +7s +environment")

    def test_where_ranks_meet_may_stand_in_the_file(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            file = self.write("settings", f"rendezvous = 127.0.0.1:{free.getsockname()[1]}\nstart_timeout = 20s\n")
        ranks = [subprocess.Popen([HORON, "bench", "first"], cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE,
                                  env=dict(os.environ, HORON_RANK=str(rank), HORON_SIZE="2", HORON_CONFIG=file))
                 for rank in range(2)]
        for rank in ranks:
            out, err = rank.communicate(timeout=60)
            self.assertEqual((rank.returncode, err), (0, ""))
            self.assertIn("done", out)

    def test_switches_take_true_and_false(self):
        for flags, want in ((["--insecure"], "true"), (["--insecure", "true"], "true"), (["--insecure", "false"], "false"),
                            (["--insecure=yes"], "true"), ([], "false")):
            self.assertRegex(self.accept("info", "--knobs", *flags), rf"insecure +{want} ")
            self.assertRegex(self.accept("run", "-np", "1", *flags, HORON, "info", "--knobs"), rf"insecure +{want} ")
        self.accept("run", "-np", "1", "--insecure", "true")  # the program
        self.accept("run", "-np", "1", "--insecure", "true", "true")

    def test_reduction_is_no_setting(self):
        for done in (lambda says: self.refuse_run("--reduction", "exact", says=says),
                     lambda says: self.refuse_run("--reduction", "sloppy", says=says),
                     lambda says: self.refuse_run(env={"HORON_REDUCTION": "exact"}, says=says),
                     lambda says: self.refuse_run("--config", self.write("settings", "reduction = exact\n"), says=says)):
            done(["horon train --reduction"])

    def test_dashes_and_underscores_are_equal(self):
        for flag in ("--bucket-bytes", "--bucket_bytes", "--Bucket_bytes"):
            self.assertRegex(self.accept("info", "--knobs", flag, "4MB"), r"bucket_bytes +4MB +command line", flag)
            self.assertEqual(self.accept("run", "-np", "1", f"{flag}=4MB", "sh", "-c", "echo $HORON_BUCKET_BYTES"), "[0] 4MB\n", flag)
        file = self.write("settings", "Bucket-Bytes = 5MB\n")
        self.assertRegex(self.accept("info", "--knobs", "--config", file), r"bucket_bytes +5MB +file")
        self.assertRegex(self.accept("info", "--knobs", "--fusion-threshold-mb", "2"), r"bucket_bytes +2097152 +command line")

    def train(self, *arguments, says="HORON_TORCH=/nowhere", env=None):
        """The settings are taken, and the next thing is missing, or they are refused."""
        self.refuse("train", *arguments, says=says, env={"HORON_TORCH": "/nowhere", **(env or {})})

    def test_the_trainer_takes_every_setting(self):
        """By flag and file, in any spelling, by other programs' names; nothing is opened for that."""
        rows = [(row.split()[0], row[25:].split(" ")[0]) for row in self.accept("info", "--knobs").splitlines()[1:]]
        self.assertGreater(len(rows), 70)
        for spell in (str, lambda name: name.replace("_", "-")):
            self.train(*(word for name, value in rows for word in (f"--{spell(name)}", value)))
            self.train("--config", self.write("settings", "".join(f"{spell(name)} = '{value}'\n" for name, value in rows)))
        for flags in (["--data_url", "/d", "--train-url", "x"], ["--dataset_dir=/d", "--train_dir=x"], ["--log_dir", "x"],
                      ["--model_name", "lenet", "--dataset_name", "mnist", "--max_epochs", "3"], ["--fusion-threshold-mb", "2"],
                      ["--skip-eval"], ["--skip_eval", "false"]):
            self.train(*flags)

    def test_what_the_trainer_refuses(self):
        self.train("--bucket-bytes", "x", says=["--bucket-bytes: 'x'", "0 to 1TB"])
        self.train("--momentum", "5", says="--momentum: '5': allowed is 0 to 0.9999")
        self.train("--bucket-byte", "1", says="did you mean 'bucket_bytes'?")
        self.train("--lerning-rate", "1", says="did you mean 'learning_rate'?")
        self.train("--use_synthetic_data", says="--dataset synthetic")
        self.train("--dgc-total-samples=5", says="not implemented yet")
        self.train("--dtype", "fp16", says="closest available type is bf16")
        self.train("--config", self.write("settings", "\nworker_hosts = a,b\n"), says=["settings:2: worker_hosts", "horon run -np N"])
        self.train("--config", self.write("settings", "spin = 3\nspin = -1\n"), says="settings:2: spin: '-1'")
        self.train(env={"HORON_SPIN": "fast"}, says="HORON_SPIN (environment)")
        self.train("more", says="'more' was not expected")

    def test_two_names_of_one_setting(self):
        """Whoever contradicts himself is told so, by the names that he typed; who says the same twice is not."""
        self.train("--train-url", "a", "--model_dir", "b", says=["--train-url", "--model_dir", "both are model_dir"])
        self.train("--max_epochs", "x", says=["--max-epochs", "'x'"])
        self.train("--max_epochs", "3", "--train_epochs", "3")
        self.refuse_run("--fusion-threshold-mb", "2", "--bucket-bytes", "4MB", says=["--fusion-threshold-mb", "--bucket-bytes", "both are"])
        self.refuse("info", "--gloo-timeout-seconds", "5", "--timeout", "6s", says=["--gloo-timeout-seconds", "--timeout", "both are timeout"])
        self.assertRegex(self.accept("info", "--knobs", "--gloo_timeout_seconds", "5", "--timeout", "5s"), r"timeout +5s +command line")

    def test_flags_of_run_that_mean_a_setting(self):
        for one, other in ((["--timeline", "a"], ["--timeline-filename", "b"]),
                           (["--autotune-file", "a"], ["--autotune-log-file", "b"]),
                           (["--interface", "lo"], ["--network-interfaces", "eth0"]),
                           (["--cross-backend", "tcp"], ["--gloo"]),
                           (["--backend", "shm"], ["--no-hierarchical-allreduce"])):
            for flags in (one + other, other + one):
                self.refuse_run(*flags, says=[f"{one[0]} and {other[0]}: both are", "give one of the two"])
        self.accept("run", "-np", "1", "--timeline", "a", "--timeline-filename", "a", "--gloo", "--cross-backend", "GLOO", "true")
        out = self.accept("run", "-np", "1", "--autotune", "--autotune-file", "a", "sh", "-c", "echo $HORON_AUTOTUNE_FILE")
        self.assertEqual(out, "[0] a\n")  # the switch has no file of its own then

    def test_settings_of_the_trainer_are_explained_elsewhere(self):
        self.refuse_run("--batch_size", "64", says=["--batch_size", "GLOBAL batch", "after `horon train`"])
        self.refuse_run("--train-url", "x", says=["folder for checkpoints", "after `horon train`"])
        self.refuse_run("--config", self.write("settings", "seed = 3\n"), says=["settings:1: seed", "`horon train --seed 3`"])
        self.assertRegex(self.accept("info", "--knobs"), r"batch_size +128 +`horon train` +GLOBAL")
        for name, says in (("batch-size", ["scope", "run", "equal", "for MoXing's batch_size, which is per GPU"]),
                           ("train_url", ["model_dir", "MoXing", "slim"]), ("loss_scale", ["no meaning here"])):
            said = self.accept("info", "--explain", name)
            for word in says:
                self.assertIn(word, said)
        self.refuse("info", "--explain", "batchsize", says="'batch_size'")

    def test_what_the_launcher_sets_itself(self):
        self.refuse_run("--rendezvous", "here:1234", says="--rendezvous-port")
        self.refuse_run("--secret-file", "mine", says="--secret-file")

    def test_backends_that_cannot_work(self):
        self.refuse_run("--backend", "mpi", says="horon run --mpi")
        self.refuse_run(env={"HORON_BACKEND": "mpi"}, says="horon run --mpi")
        self.refuse_run("--backend", "hier", "--cross-backend", "mpi", says="horon run --mpi")
        self.refuse_run("-H", "localhost:1,127.0.0.1:1", "--cross-backend", "mpi", says="horon run --mpi")
        self.refuse_run("--backend", "self", says="self")
        self.refuse_run("--backend", "local", says="local")
        self.refuse_run("-H", "localhost:1,127.0.0.1:1", "--backend", "shm", says="hier")
        self.refuse_run("--backend", "nccl", "--parts", "/nowhere", says="nccl")
        if not any(name.startswith("nvidia") for name in os.listdir("/dev")):  # whatever parts were built
            self.refuse_run("--backend", "nccl", says=" part 'nccl' " if self.lacks_part("nccl") else "no CUDA device")
        self.accept("run", "-np", "2", "--cross-backend", "mpi", "true")  # one host: not used
        self.accept("run", "-np", "1", "--backend", "self", "true")

    def test_a_variable_that_is_nearly_a_setting(self):
        done = self.horon("run", "-np", "2", "true", env={"HORON_TIEMOUT": "5s", "HORON_SOMETHING_ELSE": "1"})
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr, "horon run: HORON_TIEMOUT is not a setting; did you mean HORON_TIMEOUT?\n")


class Run(InputTest):
    def test_horovods_numbers(self):
        for flag in ("--fusion-threshold-mb", "--cycle-time-ms", "--gloo-timeout-seconds", "--stall-check-warning-time-seconds",
                     "--stall-check-shutdown-time-seconds", "--cache-capacity", "--autotune-warmup-samples",
                     "--autotune-steps-per-sample", "--autotune-bayes-opt-max-samples", "--autotune-gaussian-process-noise",
                     "--num-nccl-streams", "--thread-affinity"):
            for bad in ("-1", "x", "nan", "inf", "1e300", ""):
                with self.subTest(flag=flag, bad=bad):
                    self.refuse_run(flag, bad, says=[flag, bad])
                    self.refuse_run(f"{flag}={bad}", says=[flag, bad])
        self.refuse_run("--gloo-timeout-seconds", "0", says="--gloo-timeout-seconds")

    def test_horovods_numbers_that_mean_something(self):
        script = "echo $HORON_BUCKET_BYTES $HORON_STALL_SHUTDOWN_TIME $HORON_STALL_WARNING_TIME"
        out = self.accept("run", "-np", "1", "--fusion-threshold-mb", "0", "--stall-check-shutdown-time-seconds", "0",
                          "--stall-check-warning-time-seconds", "1.5", "sh", "-c", script)
        self.assertEqual(out, "[0] 0 365d 1.5s\n")  # no fusion, no end

    def test_flags_of_run_in_other_spellings(self):
        for spelling in (["-np=2"], ["-n=2"], ["-np", "2"], ["-n2"], ["--np=2"], ["--num-proc", "2"]):
            self.assertEqual(self.accept("run", *spelling, "echo", "hi").count("hi"), 2, spelling)
        self.assertEqual(self.accept("run", "-H=localhost:3", "echo", "hi").count("hi"), 3)
        for bad in ("-np=two", "-np=0", "-np="):
            self.refuse("run", bad, *STARTED, says="np")
        self.refuse("run", "--backedn", "shm", *STARTED, says="--backend")
        self.refuse("run", "-np", says="np")
        self.refuse("run", "-np", "2", says="no program")

    def test_version_is_printed(self):
        horonrun = self.at("horonrun")
        os.symlink(HORON, horonrun)
        version = self.accept("--version")
        for flag in ("-v", "--version"):
            self.assertEqual(self.horon(flag, program=horonrun).stdout, version)
            self.assertEqual(self.accept("run", flag), version)

    def test_host_files_are_checked(self):
        hosts = self.write("hosts", "localhost:2\n")
        self.assertEqual(self.accept("run", "--hostfile", hosts, "echo", "hi").count("hi"), 2)
        for text, says in (("# ours\nlocalhost:two\n", "hosts:2"), ("localhost:2 slots=3\n", "hosts:1"), ("a 2\n", "hosts:1"),
                           ("a slots=-1\n", "hosts:1"), ("a:0\n", "hosts:1"), ("", "no hosts"), ("-oProxy\n", "hosts:1")):
            with self.subTest(text=text):
                self.refuse("run", "--hostfile", self.write("hosts", text), *STARTED, says=says)
        self.refuse_run("-H", "localhost:1", says="slot")
        self.refuse_run("-H", "localhost:2,localhost:2", says="twice")

    def test_files_that_are_not_there(self):
        self.refuse_run("-H", "far.example:2", "--ssh-identity-file", "nowhere", says=["--ssh-identity-file", "nowhere"])
        self.refuse_run("-H", "far.example:2", "--ssh-config", "nowhere", says=["--ssh-config", "nowhere"])
        self.refuse("run", "--hostfile", "nowhere", *STARTED, says="nowhere")
        self.refuse("run", "--config-file", "nowhere", *STARTED, says="nowhere")

    def test_empty_names(self):
        for flag in ("-H", "--hostfile", "--workdir", "--ssh-identity-file", "--ssh-config", "--remote-horon", "-x",
                     "--network-interfaces", "--output-filename", "--timeline-filename", "--autotune-log-file"):
            self.refuse_run(flag, "", says=["empty", flag.lstrip("-") if flag != "-H" else "--hosts"])

    def test_arguments_for_mpirun_without_it(self):
        for flag in ("--mpi-args", "--binding-args"):
            self.refuse_run(f"{flag}=--bind-to core", says=[flag, "--mpi"])

    def test_configuration_file(self):
        for text, says in (("params:\n  fusion_treshold_mb: 32\n", ["c.yaml:2", "fusion_treshold_mb", "fusion-threshold-mb"]),
                           ("verbose: perhaps\n", ["c.yaml:1", "perhaps"]), ("num_proc: true\n", ["c.yaml:1", "num_proc"]),
                           ("num_proc: -3\n", ["c.yaml:1", "-3"]), ("params:\n  fusion_threshold_mb: x\n", ["c.yaml:2", "'x'"]),
                           ("log_level: loud\n", ["c.yaml:1", "loud"]), ("logging:\n  level: loud\n", ["c.yaml:2", "loud"]),
                           ("hosts:\n", ["c.yaml:1", "hosts"]), ("- a\n", ["c.yaml:1"]), ("insecure: maybe\n", ["c.yaml:1"]),
                           ("controller: lam\n", ["c.yaml:1", "lam"]), ("config_file: other\n", ["c.yaml:1"])):
            with self.subTest(text=text):
                self.refuse_run("--config-file", self.write("c.yaml", text), says=says)
        good = self.write("c.yaml", "---\nparams:\n  fusion_threshold_mb: '32'\ninsecure: false\nverbose: False\nnum-proc: 3\n"
                                    "timeline:\n  filename: \"t # 1\"\n")
        out = self.accept("run", "--config-file", good, "sh", "-c", "echo $HORON_BUCKET_BYTES $HORON_INSECURE $HORON_TIMELINE")
        self.assertEqual(out.count(f"{32 << 20} false {os.path.realpath(self.folder)}/t # 1"), 3)


class Others(InputTest):
    def test_unknown_commands_are_refused(self):
        self.refuse("bench", "fly", says=["unknown command 'bench fly'", "allreduce"])
        self.refuse("bench", "lunch", says="'launch'")
        self.refuse("trace", "marge", says="'merge'")
        self.refuse("--colour", says="--colour")
        self.refuse("trace", says="merge")
        for hidden in ("agent", "mpi-rank"):
            self.assertNotIn(hidden, self.horon("fly").stderr)

    def test_invalid_arguments_of_bench_are_refused(self):
        self.refuse("bench", "launch", "--mpi", "lam", says=["lam", "openmpi"])
        for command in ("input", "train"):
            self.refuse("bench", command, "--peers", "nowhere", says=["--peers", "nowhere"])
            self.refuse("bench", command, "--peers", "/bin/sh", "--peer-script", "nowhere", says=["--peer-script", "nowhere"])
        for flags in (["--backend", "mpi"], ["--backend", "hier", "--cross-backend", "mpi"]):
            self.refuse("bench", "runtime", *flags, says=[f"{flags[-2]} mpi", "mpirun must start the ranks"])
        self.refuse("bench", "runtime", says="--backend mpi", env={"HORON_BACKEND": "mpi"})
        self.refuse("bench", "runtime", "--backend", "self", says="--backend self")
        self.refuse("bench", "runtime", "--rendezvous", "here:1234", says="--rendezvous")
        self.refuse("bench", "train", "--parts", "/nowhere", says="part 'train' cannot be opened")

    def test_what_two_ranks_say_is_said_once(self):
        done = self.horon("demo", "--heap-bytes", "1MB")
        self.assertEqual(done.returncode, 15)
        self.assertEqual((done.stderr.count("\n"), done.stderr.count("heap of 1 MB")), (1, 1), done.stderr)

    def timeline(self, name, rank, tail=""):
        head = json.dumps({"horon_timeline": 1, "rank": rank, "sync_ns": [1000, 2000, 3000]})
        event = json.dumps({"name": "a", "ph": "X", "ts": 5.0, "dur": 1.0, "pid": rank, "tid": 0})
        return self.write(name, f"{head}\n{event}\n{event}\n{tail}")

    def test_trace_merge_refuses_invalid_input(self):
        zero, one, again = self.timeline("t.0", 0), self.timeline("t.1", 1), self.timeline("copy", 1)
        with open(self.at(zero)) as file:
            before = file.read()
        self.refuse("trace", "merge", "-o", "all", zero, one, again, says=["rank 1", "t.1", "copy"])
        self.refuse("trace", "merge", "-o", "all", zero, zero, says=["rank 0", "t.0"])
        self.refuse("trace", "merge", "-o", zero, zero, one, says="t.0")
        self.refuse("trace", "merge", "-o", "./t.0", one, zero, says="t.0")
        self.refuse("trace", "merge", "-o", "all", self.write("g", "garbage\n"), says="g:1")
        self.refuse("trace", "merge", "-o", "all", self.write("e", ""), says="e: ")
        self.assertFalse(os.path.exists(self.at("all")), "an output that nothing was written to")
        with open(self.at(zero)) as file:
            self.assertEqual(file.read(), before)
        self.accept("trace", "merge", "-o", "all", one, zero)

    def test_merge_of_a_killed_rank(self):
        zero, cut = self.timeline("t.0", 0), self.timeline("t.1", 1, '{"name": "b", "ph": "X", "ts"')
        done = self.horon("trace", "merge", "-o", "all", zero, cut)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("t.1:4", done.stderr)
        with open(self.at("all")) as file:
            events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
        self.assertEqual([event["pid"] for event in events], [0, 0, 1, 1])
        whole = self.timeline("t.2", 2, '{"name": "b"\n')  # ended, so not cut: somebody else's
        self.refuse("trace", "merge", "-o", "all", whole, says="t.2:4")

    def test_plot_does_not_overwrite_a_log(self):
        os.mkdir(self.at("run1"))
        log = self.write("run1/log.jsonl", '{"epoch": 1, "loss": 2}\n')
        self.refuse("plot", "run1", "-o", log, says="log.jsonl")
        self.refuse("plot", "nowhere", says="nowhere")
        self.accept("plot", "run1")

    def test_secret_does_not_overwrite_a_file(self):
        self.refuse("secret", says="file")
        self.refuse("secret", self.write("there", ""), says="there", code=14)


if __name__ == "__main__":
    unittest.main()
