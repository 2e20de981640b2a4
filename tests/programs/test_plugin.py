# SPDX-License-Identifier: Apache-2.0
"""`lockstep plugin new` and `plugin check`: templates, a wrong peer, hostile plugins, promises that are broken one by one."""
import os
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

from support import BAD_INPUT, DONE, FAILED, UNAVAILABLE, USAGE, ProgramTest, main, read_json

SOURCE = os.environ["LOCKSTEP_SOURCE"]
TEMPLATES = os.environ["LOCKSTEP_TEMPLATES"]
COMPILER = shlex.split(os.environ["LOCKSTEP_COMPILER"])
SANITIZE = os.environ["LOCKSTEP_SANITIZE"]
BETWEEN_PROCESSES = os.environ["LOCKSTEP_BETWEEN_PROCESSES"]  # test_between_processes.c says how it is used
PLUGINS = os.environ["LOCKSTEP_PLUGINS"]
TRANSPORTS = os.environ["LOCKSTEP_TRANSPORTS"].split()
KINDS = ("callback", "collective", "dataset", "device", "filter", "layer", "loss", "metric", "strategy", "transport")
SUMMARY = re.compile(r": (\d+) passed, (\d+) failed, (\d+) refused in [\d.]+ s, seed (\d+)")


def template(kind):
    with open(os.path.join(SOURCE, "templates", kind + ".c")) as file:
        return file.read()


class PluginTest(ProgramTest):
    def compile(self, kind, source, *more, name="my-plugin", libraries=("-lm",)):
        """A plugin from source text; its path."""
        folder = self.path("plugins")
        os.makedirs(folder, exist_ok=True)
        text, path = os.path.join(folder, f"{kind}.c"), os.path.join(folder, f"{kind}-{name}.so")
        with open(text, "w") as file:
            file.write(source)
        sanitize = [] if SANITIZE == "none" else ["-fsanitize=" + SANITIZE]
        subprocess.run([*COMPILER, "-std=c11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-I", SOURCE, "-o", path, text,
                        *sanitize, *more, *libraries], check=True)
        return path

    def check(self, path, *arguments, expect=DONE, **more):
        outcome = self.lockstep("plugin", "check", path, *arguments, **more)
        self.assertEqual(outcome.code, expect, outcome.out + outcome.err)
        found = SUMMARY.search(outcome.out)
        outcome.counts = tuple(map(int, found.groups()[:3])) if found else None
        return outcome

    def changed(self, kind, *pairs):
        """A template with pieces of its text replaced, each of which must be there."""
        source = template(kind)
        for old, new in pairs:
            self.assertIn(old, source)
            source = source.replace(old, new)
        return self.compile(kind, source)


class New(PluginTest):
    def test_every_kind_is_written_with_its_own_name(self):
        for kind in KINDS:
            with self.subTest(kind):
                outcome = self.lockstep("plugin", "new", f"own-{kind}", "--kind=" + kind)
                self.assertEqual(outcome.code, DONE, outcome.err)
                folder = self.path(f"own-{kind}")
                self.assertEqual(set(os.listdir(folder)), {f"own-{kind}.c", "meson.build", "README.md"})
                for name in os.listdir(folder):
                    with open(os.path.join(folder, name)) as file:
                        text = file.read()
                    self.assertIn(f"own-{kind}", text)
                    self.assertNotIn("my-plugin", text)
                    self.assertNotIn("my-kind", text)
                    self.assertNotIn("LOCKSTEP_", text)
                with open(os.path.join(folder, "meson.build")) as file:
                    self.assertIn("buildtype=release", file.read())

    def test_a_collective_is_a_page(self):
        outcome = self.lockstep("plugin", "new", "page", "--kind=collective")
        self.assertRegex(outcome.out, r"export PKG_CONFIG_PATH=/\S*/packaging/in-place\n")
        with open(self.path("page/page.c")) as file:
            self.assertLess(len(file.readlines()), 80)

    def test_another_folder_can_be_named(self):
        self.assertEqual(self.lockstep("plugin", "new", "deep", "--kind=strategy", "--dir=" + self.path("elsewhere")).code, DONE)
        self.assertTrue(os.path.exists(self.path("elsewhere/deep.c")))

    def test_what_exists_is_left_alone(self):
        os.mkdir(self.path("mine"))
        with open(self.path("mine/mine.c"), "w") as file:
            file.write("precious")
        self.refused(USAGE, "plugin", "new", "mine", "--kind=collective", says=("mine already exists",))
        self.assertEqual(os.listdir(self.path("mine")), ["mine.c"])
        with open(self.path("mine/mine.c")) as file:
            self.assertEqual(file.read(), "precious")

    def test_a_name_that_is_taken_is_refused(self):
        for kind, name, taken in (("collective", "ring", "collective"), ("collective", "auto", "collective"),
                                  ("collective", "mirrored", "strategy"), ("strategy", "local", "transport"),
                                  ("device", "cpu", "device")):
            self.refused(USAGE, "plugin", "new", name, "--kind=" + kind,
                         says=(f"there is a {taken} called {name} already", f"my-{name}"))
        for kind, name in (("layer", "Dense"), ("loss", "huber"), ("metric", "auc"), ("dataset", "mnist")):
            self.refused(USAGE, "plugin", "new", name, "--kind=" + kind, says=(f"Lockstep has a {kind} {name} itself", f"my-{name}"))
        self.assertEqual(os.listdir(self.folder), [])
        self.assertEqual(self.lockstep("plugin", "new", "cpu", "--kind=collective").code, DONE)
        self.assertEqual(self.lockstep("plugin", "new", "mean_relative_error", "--kind=metric").code, DONE)  # names of Keras have underscores

    def test_names_and_kinds_that_cannot_be(self):
        for name in ("", "../up", "a/b", "with space", "_first", "dot.c", "7up", "-dash", "x" * 49):
            self.refused(USAGE, "plugin", "new", "--kind=collective", "--", name, says=("cannot be the name",))
        self.assertEqual(os.listdir(self.folder), [])
        self.refused(USAGE, "plugin", "new", "fine", says=("--kind is missing",))
        self.refused(USAGE, "plugin", "new", "fine", "--kind=colective", says=("did you mean 'collective'",))
        self.refused(USAGE, "plugin", "new", "fine", "--kind=zebra", says=("unknown kind 'zebra'",))
        self.refused(USAGE, "plugin", "new", says=("the name is missing",))
        self.refused(USAGE, "plugin", "new", "collective", "mine", says=("lockstep plugin new NAME --kind=KIND, such as mine --kind=collective",))
        self.refused(USAGE, "plugin", "new", "deep", "--kind=device", "--dir=" + self.path("no/such"), says=("cannot create",))
        self.refused(USAGE, "plugin", "now", says=("did you mean 'new'",))

    def test_help_at_each_level(self):
        for words in (("plugin", "--help"), ("plugin", "new", "--help"), ("plugin", "check", "--help")):
            outcome = self.lockstep(*words)
            self.assertEqual(outcome.code, DONE)
            self.assertIn("usage: lockstep plugin", outcome.out)
        self.assertEqual(self.lockstep("plugin").code, USAGE)


class Check(PluginTest):
    def test_every_template_passes_as_it_is(self):
        least = {"callback": 10, "collective": 200, "dataset": 20, "device": 20, "filter": 200, "layer": 35, "loss": 20, "metric": 15, "strategy": 40, "transport": 150}
        for kind in KINDS:
            with self.subTest(kind):
                more = ["--filter=dense_backward_weights"] if kind == "device" else []
                outcome = self.check(os.path.join(TEMPLATES, kind + "-my-plugin.so"), "--quiet", *more)
                self.assertGreaterEqual(outcome.counts[0], least[kind] if not more else 5)
                self.assertEqual(outcome.counts[1], 0)
                if not more:
                    self.assertEqual(outcome.counts[2], 0)

    def test_a_new_collective_reduces_in_one_process_and_in_several(self):
        self.lockstep("plugin", "new", "page", "--kind=collective")
        with open(self.path("page/page.c")) as file:
            path = self.compile("collective", file.read(), name="page")
        for transport in TRANSPORTS:
            with self.subTest(transport):
                ended = subprocess.run([BETWEEN_PROCESSES, transport, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True, timeout=300,
                                       env=dict(os.environ, LOCKSTEP_PLUGIN_PATH=PLUGINS, UCX_NET_DEVICES="lo", UCX_TLS="tcp"))
                self.assertEqual(ended.returncode, 0, ended.stdout)
                self.assertIn("100%: Checks: 1,", ended.stdout)

    def test_rows_tell_the_same_as_the_lines(self):
        path = self.path("rows.json")
        outcome = self.check(os.path.join(TEMPLATES, "strategy-my-plugin.so"), "--json=" + path, "--seed=7")
        report = read_json(path)
        self.assertIs(report["passed"], True)
        self.assertEqual(report["command"], "plugin check")
        self.assertEqual(len(report["rows"]), sum(outcome.counts))
        self.assertEqual({row["verdict"] for row in report["rows"]}, {"passed"})
        self.assertEqual({row["suite"] for row in report["rows"]}, {"loading", "strategy"})
        for row in report["rows"]:
            self.assertIn(row["case"], outcome.out)
        self.assertIn("seed 7", outcome.out)

    def test_a_wrong_peer_is_named_with_rank_round_and_range(self):
        plugin = self.changed("collective", ("(rank + 1) % world", "(rank + 2) % world"))
        path = self.path("rows.json")
        outcome = self.check(plugin, "--json=" + path, expect=FAILED)
        self.assertRegex(outcome.out, r"FAILED +schedule +all-reduce ranks=3: .*rank 0, round 0: sends element 0 to rank 2")
        report = read_json(path)
        self.assertIs(report["passed"], False)
        outcome = self.lockstep("verify", plugin)
        self.assertEqual(outcome.code, FAILED)
        self.assertRegex(outcome.out + outcome.err, r"rank \d+, round \d+: send")

    def test_a_wrong_sum_is_found(self):
        plugin = self.changed("collective", ("ls_receive_and_reduce(schedule, previous,", "ls_receive(schedule, previous,"))
        self.assertRegex(self.check(plugin, expect=FAILED).out, r"FAILED +schedule +all-reduce ranks=2: ")

    def test_exit_codes(self):
        self.refused(USAGE, "plugin", "check", says=("the file is missing",))
        self.refused(BAD_INPUT, "plugin", "check", self.path("none.so"), says=("none.so",))
        with open(self.path("collective-text.so"), "w") as file:
            file.write("no shared object\n")
        self.refused(UNAVAILABLE, "plugin", "check", self.path("collective-text.so"), says=("not a shared object",))
        other = self.changed("collective", ("LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE)", "LS_PLUGIN_HEADER(99)"))
        self.refused(UNAVAILABLE, "plugin", "check", other, says=("unknown kind 99",))
        good = os.path.join(TEMPLATES, "strategy-my-plugin.so")
        for deadline in ("0", "-1", "nan", "soon", "1e9"):
            self.refused(USAGE, "plugin", "check", good, "--deadline=" + deadline, says=("--deadline",))
        self.refused(USAGE, "plugin", "check", good, "--filter=zebra", says=("no case has 'zebra'",))
        self.refused(BAD_INPUT, "plugin", "check", good, "--json=" + self.path("no/rows.json"), says=("--json",))


DESCRIBE = "    const uint32_t world = call->world, rank = call->rank;\n"
ENTRY = "    return &plugin;\n"
INCLUDE = '#include "core/plugin/collective.h"\n'


class Hostile(PluginTest):
    """Each is named, and nothing hangs."""

    def hostile(self, code, headers="", where=DESCRIBE, deadline="2", expect=FAILED):
        plugin = self.changed("collective", (where, code + where), (INCLUDE, "#define _GNU_SOURCE\n" + INCLUDE + headers))
        return self.check(plugin, "--deadline=" + deadline, expect=expect, timeout=200)

    def test_crashes_in_describe(self):
        if SANITIZE != "none":
            self.skipTest("a sanitizer reports the crash in its own way")
        out = self.hostile("    if (call->world == 3) *(volatile int *)8 = 1;\n").out
        self.assertRegex(out, r"FAILED +schedule +all-reduce ranks=3: crashed: signal 11")
        self.assertRegex(out, r"passed +schedule +all-reduce ranks=4")

    def test_never_returns_from_describe(self):
        out = self.hostile("    for (volatile int forever = 1; call->world == 5 && forever;) continue;\n").out
        self.assertRegex(out, r"FAILED +schedule +all-reduce ranks=5: did not end within 2 s")
        out = self.hostile("    for (volatile int forever = 1; forever;) continue;\n", deadline="0.3").out
        self.assertIn("did not end within 0.3 s", out)
        self.assertRegex(out, r"FAILED +loading +\d+ more cases: not run: 3 cases did not end")

    def test_describes_without_end(self):
        out = self.hostile("    while (call->world == 5) ls_end_round(schedule);\n").out
        self.assertRegex(out, r"FAILED +schedule +all-reduce ranks=5: ")

    def test_prints(self):
        for stream in ("stdout", "stderr"):
            out = self.hostile(f'    if (call->world == 7) fputs("hello\\n", {stream});\n').out
            self.assertRegex(out, r"FAILED +schedule +all-reduce ranks=7: it printed on standard (output|error): hello")
            out = self.hostile(f'    fputs("loaded\\n", {stream});\n', where=ENTRY).out
            self.assertRegex(out, r"FAILED +loading +output: printed on standard (output|error): loaded")

    def test_installs_a_handler(self):
        header = "#include <signal.h>\n"
        out = self.hostile("    if (call->world == 7) signal(SIGINT, SIG_IGN);\n", header).out
        self.assertRegex(out, r"FAILED +schedule +all-reduce ranks=7: it changed the handler of signal 2")
        out = self.hostile("    signal(SIGTERM, SIG_IGN);\n", header, where=ENTRY).out
        self.assertRegex(out, r"FAILED +loading +signal_handlers: it changed the handler of signal 15")

    def test_changes_the_process(self):
        for code, header, case, message in (
            ('setenv("HOME", "/", 1);', "#include <stdlib.h>\n", "environment", "changed the environment variable HOME"),
            ('unsetenv("HOME");', "#include <stdlib.h>\n", "environment", "removed the environment variable HOME"),
            ('(void)!chdir("/");', "#include <unistd.h>\n", "working_directory", "changed the working directory"),
            ("umask(0);", "#include <sys/stat.h>\n", "umask", "changed the umask to 000"),
            ("fesetround(FE_UPWARD);", "#include <fenv.h>\n", "floating_point_mode", "changed the floating-point mode"),
            ("setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, 64});", "#include <sys/resource.h>\n", "limits", "changed resource limit"),
            ('(void)!open("/dev/null", O_RDONLY);', "#include <fcntl.h>\n", "open_files", "left 1 files open"),
        ):
            with self.subTest(case):
                out = self.hostile("    " + code + "\n", header, where=ENTRY).out
                self.assertRegex(out, rf"FAILED +loading +{case}: it {message}")

    def test_leaves_a_thread_behind(self):
        if SANITIZE == "thread":
            self.skipTest("ThreadSanitizer waits for threads that are left behind")
        code = "    static pthread_t thread; pthread_create(&thread, 0, sleeper, 0);\n"
        header = "#include <pthread.h>\n#include <unistd.h>\nstatic void *sleeper(void *x) { pause(); return x; }\n"
        out = self.hostile(code, header, where=ENTRY).out
        self.assertRegex(out, r"FAILED +loading +threads: it left 1 threads behind")

    def test_exits(self):
        out = self.hostile("    if (call->world == 7) exit(0);\n", "#include <stdlib.h>\n").out
        self.assertRegex(out, r"FAILED +schedule +all-reduce ranks=7: ended the process \(exit code \d+\)")
        plugin = self.changed("collective", (ENTRY, "    exit(0);\n" + ENTRY), (INCLUDE, INCLUDE + "#include <stdlib.h>\n"))
        self.refused(UNAVAILABLE, "plugin", "check", plugin, says=("exited in lockstep_plugin()",))

    def test_is_not_pure(self):
        out = self.hostile("    static uint32_t calls;\n    if (calls++ % 2) return ls_end_round(schedule);\n").out
        self.assertRegex(out, r"FAILED +loading +instances: build_schedule is not pure")

    def test_exports_or_wants_too_much(self):
        plugin = self.changed("collective", ("static int32_t build_schedule", "LS_EXPORT int32_t build_schedule"))
        self.assertRegex(self.check(plugin, expect=FAILED).out, r"FAILED +loading +exported_symbols: exports build_schedule")
        plugin = self.changed("collective", (DESCRIBE, DESCRIBE + "    if (ls_core) ls_core();\n"),
                              (INCLUDE, INCLUDE + "extern void ls_core(void) __attribute__((weak));\n"))
        self.assertRegex(self.check(plugin, expect=FAILED).out, r"FAILED +loading +undefined_symbols: wants ls_core")


class Promises(PluginTest):
    """The suites of strategies, transports and devices find what is wrong in a template that was changed."""

    def broken(self, kind, case, message, *pairs, filter=None):
        more = ["--filter=" + filter] if filter else []
        outcome = self.lockstep("plugin", "check", self.changed(kind, *pairs), "--quiet", *more, timeout=250)
        self.judge(kind, case, message, outcome)

    def judge(self, kind, case, message, outcome):
        with self.subTest(message):
            self.assertEqual(outcome.code, FAILED, outcome.out + outcome.err)
            self.assertRegex(outcome.out, rf"FAILED +{kind} +{case}[^\n]*{message}")

    def test_strategies(self):
        update = "        status = host->step->update(host, replica, bucket);\n"
        check = "        status = host->step->check_step(host, replica);"
        wait = "        status = host->collectives->all_reduce_wait(host, replica, bucket);\n"
        self.broken("strategy", "steps", "updated bucket 0 2 times", (update, update.replace(";", " | host->step->update(host, replica, bucket);")))
        self.broken("strategy", "steps", "updated bucket 0 0 times", (update, "        status = LS_OK;\n"))
        self.broken("strategy", "steps", "before check_step", (check, "        status = LS_OK;"))
        self.broken("strategy", "steps", "before its sum is there", (wait, "        if (bucket == 0)\n    " + wait))
        self.broken("strategy", "steps", "the order must be the same",
                    ("all_reduce_start(host, replica, bucket)", "all_reduce_start(host, replica, replica ? host->bucket_count - 1 - bucket : bucket)"))
        self.broken("strategy", "steps", "differs from that of replica 0",
                    ("return host->collectives->broadcast_parameters(host, replica, 0);", "return (void)replica, (void)host, LS_OK;"))
        broadcast = "return host->collectives->broadcast_parameters(host, replica, 0);"
        self.broken("strategy", "steps", "prepare: an all-to-all of 1 values has no equal blocks for 2 replicas",
                    ("    " + broadcast, """    struct ls_strategy_operation one = {.struct_size = sizeof(one), .operation = LS_ALL_TO_ALL,
                                         .memory = LS_REPLICA_GRADIENTS, .count = 1};
    struct ls_strategy_collective *range;
    const int32_t status = host->collectives->prepare(host, replica, &one, &range);
    if (status)
        return status;
    """ + broadcast))
        self.broken("strategy", "steps", "there are 2 and 1", ("all_reduce_wait(host, replica, bucket)", "all_reduce_wait(host, replica, bucket + 1)"))
        self.broken("strategy", "update_fails", "not with what the host answered",
                    (update, "        host->step->update(host, replica, bucket);\n"))
        self.broken("strategy", "steps", "waits for other replicas",
                    ("    (void)strategy, (void)replica, (void)bucket;\n    return LS_OK;",
                     "    return strategy->host->collectives->all_reduce_wait(strategy->host, replica, bucket);"))

    def test_transports(self):
        # Those that wait for a deadline wait at the same time.
        waiting = []

        def broken(case, message, pair, filter):
            path = self.changed("transport", pair)
            folder = self.path(str(len(waiting)))
            os.mkdir(folder)
            waiting.append((case, message, shutil.move(path, folder), filter))

        broken("receive_reduce float32 sum", "is not",
               ("case LS_SUM: return a + b;\n    case LS_PRODUCT: return a * b;\n    case LS_MIN: return b < a ||",
                "case LS_SUM: return a + b + 1;\n    case LS_PRODUCT: return a * b;\n    case LS_MIN: return b < a ||"),
               filter="float32 sum")
        broken("other_signature", "message that differs", ("send->signature != transfer->signature || ", ""), filter="other_")
        broken("posted_in_any_order", "", ("while (send && send->send_number != number)", "while (0)"), filter="any_order")
        broken("divide", "is not", ("(double)transfer->divisor);", "((double)transfer->divisor + 1));"), filter="divide")
        broken("abort_by", "not LS_ABORTED",
               ("    transport->shared->aborted = 1;\n", "    transport->shared->aborted = 0;\n"), filter="abort_by_the_peer")
        broken("late_sender", "wait_any", ("    while (!ready) {", "    while (0) {"), filter="late_sender")
        broken("receive float32", "memory outside",
               ("        memcpy(receive->memory, send->memory, bytes_of(receive));",
                "        memcpy(receive->memory, send->memory, bytes_of(receive) + 1);"), filter="receive float32")
        with ThreadPoolExecutor(len(waiting)) as pool:
            outcomes = pool.map(lambda one: self.lockstep("plugin", "check", one[2], "--quiet", "--filter=" + one[3], timeout=250), waiting)
            for (case, message, _, _), outcome in zip(waiting, outcomes):
                self.judge("transport", case, message, outcome)

    def test_datasets(self):
        load = "    const uint64_t number = state->first + example;\n"
        self.broken("dataset", "examples of 'train'", "example 1 is another one when it is loaded again",
                    (load, load.replace("example;", "example + (example == 1 ? state->calls++ : 0);")),
                    ("    double noise;\n", "    double noise;\n    uint64_t calls;\n"))
        self.broken("dataset", "examples of 'train'", "example 3 has the label 2 of 2 classes", (load, load + "    if (example == 3) { *(int32_t *)fields[1] = 2; return LS_OK; }\n"))
        self.broken("dataset", "examples of 'train'", "example 0: wrote beside field point", (load, load + "    ((float *)fields[0])[2] = 0;\n"))
        self.broken("dataset", "description of 'train'", "0 inputs, 2 targets", (".role = LS_FIELD_INPUT", ".role = LS_FIELD_TARGET"))
        self.broken("dataset", "examples of 'test'", "load of example 2: .*: example 2: no more", (
            load, load + '    if (state->first && example == 2) return ls_host_fail(state->host, LS_BAD_INPUT, "example 2: no more");\n'),
            ("    double noise;\n", "    double noise;\n    const struct ls_host *host;\n"), ("    state->classes =", "    state->host = host;\n    state->classes ="))

    def test_filters(self):
        decoded = "            memory->delivered[i] = from_half(own[i]);"
        self.broken("filter", "ranks=2 a dense layer, random", "rank 1 has", ("float sum = 0;", "float sum = (float)memory->rank;"), filter="=2 a dense")
        self.broken("filter", "ranks=3 primes, random", "neither in the sums nor owed", (decoded, decoded.replace("from_half(own[i])", "0")), filter="=3 primes")
        self.broken("filter", "ranks=1 primes, random", "neither in the sums nor owed", (decoded, decoded.replace("from_half(own[i])", "memory->x[i]")), filter="=1 primes")
        self.broken("filter", "ranks=2 primes, random", "wrote beside its memory", (
            "        return LS_OK;\n    }\n    for", "        memory->delivered[call->count] = 0;\n        return LS_OK;\n    }\n    for"), filter="=2 primes")
        self.broken("filter", "ranks=2 a dense layer, random", "the shared memory of rank 1 is not that of rank 0", (
            "        uint16_t *own =", "        memory->shared[0] = (uint8_t)memory->rank;\n        uint16_t *own ="), (
                "    stages->scratch(stages, bytes);", "    stages->shared(stages, 1);\n    stages->scratch(stages, bytes);"), filter="=2 a dense")
        self.broken("filter", "ranks=2 a dense layer, random", "no multiple of 64", ("LS_SUM, 0, bytes)", "LS_SUM, 0, bytes - 2)"), filter="=2 a dense")
        self.broken("filter", "ranks=2 a dense layer, NaN", "the sum is finite", ("memory->result[i] = sum;", "memory->result[i] = sum == sum ? sum : 0;"), filter="=2 a dense")

    def test_layers_losses_and_metrics(self):
        divide = "ls_compose_divide(composer, x, root)"
        self.broken("layer", "the same bits twice", "element 0 of the variables", (
            divide, "ls_compose_scale(composer, x, 1 + 0.1 * builds++, 0)"), ("static int32_t build(", "static double builds;\n\nstatic int32_t build("),
            filter="twice, 7")
        self.broken("layer", "takes examples of", "none of them.*images only", (
            "    struct ls_tensor *square =", '    if (inputs[0]) return ls_compose_fail(composer, "images only");\n    struct ls_tensor *square ='),
            filter="takes")
        self.broken("layer", "takes examples of", "output 1 of 1 is NULL", ("    outputs[0] =", "    struct ls_tensor *unused ="),
                    ("    return LS_OK;", "    (void)unused;\n    return LS_OK;"), filter="takes")
        self.broken("layer", "takes at most 8 tensors", "it takes at least 9", ("    .build = build,", "    .least_inputs = 9,\n    .most_inputs = 9,\n    .build = build,"),
                    filter="takes")
        self.broken("loss", "gradients against differences, cpu", "the loss does not depend on variable",
                    ("ls_compose_subtract(composer, targets, predictions)", "ls_compose_subtract(composer, targets, targets)"), filter="cpu")
        self.broken("metric", "batches of 2", "otherwise", ("const double all = ", "const double all = examples / calls++ + "),
                    ("static double result(", "static double calls = 1;\n\nstatic double result("), filter="batches")
        out = self.check(self.changed("layer", (divide, "ls_compose_dropout(composer, x, 0.5)")), "--filter=gradients").out
        self.assertRegex(out, r"refused +layer +gradients against differences, cpu, 7: it acts at random in training")

    def test_devices(self):
        self.broken("device", "dense B=", "expected", ("double sum = b ? (double)b[n] : 0;", "double sum = b ? (double)b[n] + 1 : 0;"), filter="dense ")
        self.broken("device", "sgd_update", "skip = 1", ("!record_of(launch)->skip && i", "i"), filter="sgd")


if __name__ == "__main__":
    main()
