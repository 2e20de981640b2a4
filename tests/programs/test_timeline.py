# SPDX-License-Identifier: Apache-2.0
"""The timeline of a run: a Chrome trace that holds what every rank did, and changes nothing of what it did.

Perfetto itself is not asked: the form of the file is checked here, as its viewers read it.
"""
import bisect
import collections
import json
import os
import re
import signal
import subprocess
import unittest

from support import BAD_INPUT, DONE, FAILED, FASHION, INTERRUPTED, LOCKSTEP, USAGE, ProgramTest, main, write_json

SYNTHETIC = "--dataset=synthetic:examples=400"
THREADS_ARE_WATCHED = "thread" in os.environ.get("LOCKSTEP_SANITIZE", "")


class Span:
    def __init__(self, event):
        self.name, self.category = event["name"], event["cat"]
        self.begin, self.end = event["ts"], event["ts"] + event["dur"]
        self.arguments = event.get("args", {})

    def holds(self, other):
        return self.begin <= other.begin and other.end <= self.end


class Arrow:
    """A message: the spans that send and receive it, and the times of the arrow."""

    def __init__(self, identity, send, receive, begin, end):
        self.send, self.receive, self.begin, self.end = send, receive, begin, end
        if begin > end:
            raise AssertionError(f"message {identity} arrives before it is sent")


class Track:
    def __init__(self, process, name):
        self.process, self.name, self.spans = process, name, []

    def named(self, pattern):
        return [one for one in self.spans if re.fullmatch(pattern, one.name)]

    def within(self, outer):
        return [one for one in self.spans if one is not outer and outer.holds(one)]

    def nest(self):
        """Raises when two spans overlap without one holding the other."""
        stack = []
        for one in sorted(self.spans, key=lambda one: (one.begin, -one.end)):
            while stack and stack[-1].end <= one.begin:
                stack.pop()
            if stack and not stack[-1].holds(one):
                raise AssertionError(f"{self.process}, {self.name}: '{one.name}' reaches out of '{stack[-1].name}'")
            stack.append(one)


class Timeline:
    """A file, read strictly. Times are nanoseconds: the format's microseconds have three digits."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            content = json.load(file, parse_float=self.nanoseconds)
        self.facts = content["otherData"]
        self.processes, self.order, self.remarks, self.tracks = {}, {}, {}, {}
        self.starts, self.ends, self.counters = {}, {}, {}
        for event in content["traceEvents"]:
            self.take(event)
        for track in self.tracks.values():
            track.nest()
            track.spans.sort(key=lambda one: one.begin)
            track.begins = [one.begin for one in track.spans]
        if set(self.starts) != set(self.ends):
            raise AssertionError(f"arrows without an end or a begin: {set(self.starts) ^ set(self.ends)}")
        self.arrows = [self.arrow(identity) for identity in self.starts]
        for name, values in self.counters.items():
            times = [time for time, _ in values]
            if times != sorted(set(times)) or any(value < 0 for _, value in values) or values[-1][1] != 0:
                raise AssertionError(f"counter {name}: {values[-3:]}")

    def bound(self, event):
        """The span around an end of an arrow, which viewers tie it to. Spans of messages hold no others."""
        track = self.tracks[event["tid"]]
        spans, at = track.spans, bisect.bisect_right(track.begins, event["ts"]) - 1
        if at < 0 or not spans[at].begin <= event["ts"] < spans[at].end:
            raise AssertionError(f"no span around {event}")
        return spans[at]

    def arrow(self, identity):
        start, end = self.starts[identity], self.ends[identity]
        for event in (start, end):
            if self.tracks[event["tid"]].pid != event["pid"] or (event["cat"], event["name"]) != ("message", "message"):
                raise AssertionError(f"{event}")
        send, receive = self.bound(start), self.bound(end)
        send.process, receive.process = self.processes[start["pid"]], self.processes[end["pid"]]
        return Arrow(identity, send, receive, start["ts"], end["ts"])

    @staticmethod
    def nanoseconds(text):
        whole, digits = text.split(".")
        if len(digits) != 3:
            raise AssertionError(f"a time of {text}")
        return int(whole) * 1000 + int(digits)

    def take(self, event):
        if event["pid"] < 1:
            raise AssertionError("viewers take process 0 for the idle one")
        if event["ph"] == "M":
            value, = event["args"].values()
            if event["name"] == "thread_name":
                self.tracks[event["tid"]] = Track(self.processes[event["pid"]], value)
                self.tracks[event["tid"]].pid = event["pid"]
            elif event["name"] != "thread_sort_index":
                {"process_name": self.processes, "process_labels": self.remarks,
                 "process_sort_index": self.order}[event["name"]][event["pid"]] = value
            return
        if event["ph"] == "C":
            (unit, value), = event["args"].items()
            if self.processes[event["pid"]] != "worker":
                raise AssertionError(f"{event}")
            self.counters.setdefault(f"{event['name']} {unit}", []).append((event["ts"], value))
            return
        if event["ph"] in "sf":
            ends = self.starts if event["ph"] == "s" else self.ends
            if event["id"] in ends or event.get("bp") != {"s": None, "f": "e"}[event["ph"]]:
                raise AssertionError(f"{event}")
            ends[event["id"]] = event
            return
        if event["ph"] != "X":
            raise AssertionError(f"an event {event['ph']}")
        if event["ts"] < 0 or event["dur"] < 0 or self.tracks[event["tid"]].pid != event["pid"]:
            raise AssertionError(f"{event}")
        self.tracks[event["tid"]].spans.append(Span(event))

    def of(self, process, name=None):
        return [track for track in self.tracks.values()
                if track.process == process and (name is None or track.name == name)]

    def rank(self, rank):
        track, = self.of(f"rank {rank}", f"replica {rank}")
        return track

    def steps(self, rank):
        return {one.arguments["step"]: one for one in self.rank(rank).named("step [0-9]+")}


class TimelineTest(ProgramTest):
    def timeline(self, *arguments, expect=DONE, **more):
        path = self.path("timeline.json")
        report = self.train("--timeline=" + path, *arguments, expect=expect, **more)
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".part")], [])
        return Timeline(path), report


class TwoRanks(TimelineTest):
    ARGUMENTS = ("--model=cnn", SYNTHETIC, "--strategy=ring", "--replicas=2", "--replica-batch=16", "--threads=1", "--seed=3")

    def test_ranks_are_processes_in_order(self):
        timeline, _ = self.timeline(*self.ARGUMENTS, "--steps=2")
        names = [timeline.processes[pid] for pid in sorted(timeline.order, key=timeline.order.get)]
        self.assertEqual(names, ["worker", "rank 0", "rank 1"])
        self.assertEqual({timeline.processes[pid]: text for pid, text in timeline.remarks.items()},
                         {"rank 0": "cpu, 1 thread", "rank 1": "cpu, 1 thread"})
        facts = timeline.facts
        self.assertEqual((facts["model"], facts["strategy"], facts["collective"], facts["device"], facts["replicas"]),
                         ("cnn", "mirrored", "ring", "cpu", 2))
        self.assertEqual((facts["first_step"], facts["last_step"], facts["steps"]), (1, 2, 2))

    def operations(self, *arguments):
        """The kernels of a step, as --verbose names them."""
        outcome = self.lockstep("train", "--verbose", *self.ARGUMENTS, "--steps=3", *arguments)
        self.assertEqual(outcome.code, DONE, outcome.err)
        rows = outcome.out.split("where the time of a step goes")[1].split("optimizer update")[0].splitlines()[1:]
        names = [re.split(r"  +", row)[0] for row in rows if row.strip()]
        self.assertGreater(len(names), 10)
        return names

    def tiles(self, kernel, examples):
        """How often an operation runs in a step: "..., 4 at a time"."""
        tile = re.search(r", ([0-9]+) at a time$", kernel.arguments["implementation"])
        return -(-examples // int(tile.group(1))) if tile else 1

    def test_every_step_of_every_rank_has_every_operation_in_order(self):
        expected = self.operations("--validation=off")
        timeline, _ = self.timeline(*self.ARGUMENTS, "--steps=7", "--validation=off")
        for rank in range(2):
            steps = timeline.steps(rank)
            self.assertEqual(sorted(steps), list(range(1, 8)))
            for step in steps.values():
                inside = timeline.rank(rank).within(step)
                kernels = [one for one in inside if one.category in ("forward", "backward")]
                names = [one.name for one in sorted(kernels, key=lambda one: (one.begin, one.end))]
                self.assertEqual(list(dict.fromkeys(names)), expected)
                for kernel in kernels:
                    self.assertEqual(names.count(kernel.name), self.tiles(kernel, 16), kernel.name)
                    self.assertTrue(kernel.arguments["implementation"])
                    self.assertEqual(kernel.arguments["examples"], 16)
                self.assertEqual([one.name for one in inside].count("input"), 1)
                self.assertEqual([one.name for one in inside].count("end_step"), 1)

    def test_steps_follow_each_other_within_their_epoch(self):
        timeline, report = self.timeline(*self.ARGUMENTS, "--epochs=2")
        self.assertEqual(report["steps"], 26)
        main_track, = timeline.of("worker", "main")
        for rank in range(2):
            epochs = timeline.rank(rank).named("epoch [0-9]+")
            self.assertEqual([one.arguments["epoch"] for one in epochs], [1, 2])
            steps = timeline.steps(rank)
            for number in range(1, 27):
                self.assertTrue(epochs[0 if number <= 13 else 1].holds(steps[number]))
                self.assertTrue(number == 1 or steps[number - 1].end <= steps[number].begin)
            for epoch, on_main in zip(epochs, main_track.named("epoch [0-9]+")):
                self.assertTrue(on_main.holds(epoch))
            # Nothing of a step lies outside of one.
            for one in timeline.rank(rank).spans:
                if one.category in ("update", "communication") or one.name == "gradient_ready":
                    inside = any(step.holds(one) for step in steps.values())
                    self.assertTrue(inside or one.begin < steps[1].begin, one.name)

    def test_validation_is_within_its_epoch_on_every_rank(self):
        timeline, _ = self.timeline(*self.ARGUMENTS, "--epochs=2")
        main_track, = timeline.of("worker", "main")
        validations = main_track.named("validation")
        self.assertEqual(len(validations), 2)
        for epoch, validation in zip(main_track.named("epoch [0-9]+"), validations):
            self.assertTrue(epoch.holds(validation))
            for rank in range(2):
                own = [one for one in timeline.rank(rank).named("validation") if validation.holds(one)]
                self.assertEqual(len(own), 1)
                inside = timeline.rank(rank).within(own[0])
                self.assertGreater(len([one for one in inside if one.category == "forward"]), 3)
                self.assertEqual([one for one in inside if one.category == "backward"], [])

    def test_every_bucket_is_reduced_waited_for_and_updated_in_every_step(self):
        timeline, report = self.timeline(*self.ARGUMENTS, "--steps=6", "--validation=off")
        buckets = report["communication"]["buckets"]
        for rank in range(2):
            steps = timeline.steps(rank)
            lanes = timeline.of(f"rank {rank}", "communication")
            runs = [one for lane in lanes for one in lane.named("bucket [0-9]+")]
            self.assertEqual(len(runs), 6 * len(buckets))
            for number, step in steps.items():
                inside = timeline.rank(rank).within(step)
                for index, bucket in enumerate(buckets):
                    run, = [one for one in runs if one.name == f"bucket {index}" and step.holds(one)]
                    self.assertEqual((run.arguments["bytes"], run.arguments["algorithm"], run.arguments["operation"]),
                                     (bucket["bytes"], "ring", "all-reduce"))
                    wait, = [one for one in inside if one.name == f"wait for bucket {index}"]
                    self.assertEqual(wait.arguments["sequence"], run.arguments["sequence"])
                    update, = [one for one in inside if one.name == "update" and one.arguments["bucket"] == index]
                    ready, = [one for one in inside if one.name == "gradient_ready" and one.arguments["bucket"] == index]
                    self.assertTrue(ready.holds(Span({"name": "", "cat": "", "ts": run.begin, "dur": 0})))
                    self.assertLessEqual(run.end, wait.end)
                    self.assertLessEqual(wait.end, update.begin)
            sequences = [one.arguments["sequence"] for one in sorted(runs, key=lambda one: one.begin)]
            self.assertEqual(sequences, sorted(set(sequences)))

    def test_the_input_thread_gathers_every_batch(self):
        timeline, _ = self.timeline(*self.ARGUMENTS, "--validation=off")
        gathered = [one for track in timeline.of("worker", "ls-input") for one in track.named("gather batch")]
        self.assertEqual([one.arguments["batch"] for one in gathered][:13], list(range(1, 14)))
        for rank in range(2):
            for number, step in timeline.steps(rank).items():
                waited, = [one for one in timeline.rank(rank).within(step) if one.name == "input"]
                self.assertLessEqual(gathered[number - 1].begin, waited.end)

    def test_nothing_of_the_training_changes(self):
        plain = self.train(*self.ARGUMENTS, "--epochs=2", "--check-replicas=5")
        timeline, report = self.timeline(*self.ARGUMENTS, "--epochs=2", "--check-replicas=5")
        self.assertEqual(report["losses"], plain["losses"])
        self.assertEqual(report["parameter_hashes"], plain["parameter_hashes"])
        self.assertEqual([epoch["val_loss"] for epoch in report["epochs"]], [epoch["val_loss"] for epoch in plain["epochs"]])
        self.assertEqual(len(timeline.rank(0).named("hash parameters")), 6) # five checks, and the end


class Messages(TimelineTest):
    """Arrows and counters. That each arrow has two ends, within spans, and that counters end at 0, is checked of every file."""

    COLLECTIVES = ("ring", "hierarchical-copy", "tree", "halving-doubling", "torus", "direct", "two-level")
    ARGUMENTS = (SYNTHETIC, "--threads=1", "--batch=24", "--validation=off")
    def drawn(self, collective, world, count):
        """The bytes of each message of an all-reduce by sender and receiver, as `verify --draw` shows them."""
        outcome = self.lockstep("verify", collective, "--draw", f"--world={world}", f"--count={count}", "--operation=all-reduce",
                                f"--ranks-per-host={world}")
        self.assertEqual(outcome.code, DONE, outcome.err)
        lines = outcome.out.split("\n\n")[1].splitlines()
        starts = [found.start() for found in re.finditer("rank", lines[0])]
        messages = collections.defaultdict(list)
        for line in lines:
            for rank, start in enumerate(starts):
                found = re.match(r"s?(\d+)(?:-(\d+))? -> (\d+)", line[start:])
                if found:
                    elements = int(found[2] or found[1]) - int(found[1]) + 1
                    messages[f"rank {rank}", f"rank {found[3]}"].append(4 * elements)
        return messages

    def check(self, collective, world, model, steps=3):
        timeline, report = self.timeline(*self.ARGUMENTS, "--model=" + model, "--strategy=" + collective, f"--replicas={world}",
                                         f"--steps={steps}")
        found = collections.defaultdict(lambda: collections.defaultdict(list))
        for arrow in timeline.arrows:
            send, receive = arrow.send, arrow.receive
            self.assertRegex(send.name, rf"send to {receive.process[5:]}$")
            self.assertRegex(receive.name, rf"^(receive|reduce) from {send.process[5:]}\b")
            for key in ("of", "bytes", "sequence"):
                self.assertEqual(send.arguments[key], receive.arguments[key])
            found[send.arguments["of"]][send.process, receive.process].append(send.arguments["bytes"])
        self.assertEqual({name for name in found if name.startswith("bucket")},
                         {f"bucket {index}" for index in range(len(report["communication"]["buckets"]))})
        for index, bucket in enumerate(report["communication"]["buckets"]):
            drawn, seen = self.drawn(collective, world, bucket["bytes"] // 4), found[f"bucket {index}"]
            self.assertEqual(set(seen), set(drawn))
            for pair, messages in drawn.items():
                self.assertEqual(sum(seen[pair]), steps * sum(messages), pair)
                if model == "linear":  # too short to be sent in segments
                    self.assertEqual(sorted(seen[pair]), sorted(steps * messages), pair)

    def test_arrows_are_the_messages_of_the_schedule(self):
        for collective in self.COLLECTIVES:
            for world in (3, 4):
                with self.subTest(collective, world=world):
                    self.check(collective, world, "linear")
        self.check("ring", 3, "mlp")
        self.check("two-level", 4, "mlp")

    def test_a_message_lies_within_its_reduction(self):
        timeline, _ = self.timeline(*self.ARGUMENTS, "--model=mlp", "--strategy=ring", "--replicas=3", "--steps=4")
        runs = {(run.name, run.arguments["sequence"], track.process): run
                for track in timeline.tracks.values() if track.name == "communication" for run in track.spans}
        messages = 0
        for track in timeline.tracks.values():
            for one in track.spans if track.name in ("send", "receive") else ():
                run = runs[one.arguments["of"], one.arguments["sequence"], track.process]
                self.assertTrue(run.holds(one), one.name)
                messages += 1
        self.assertGreaterEqual(messages, len(timeline.arrows))
        # Bytes under way are those of the arrows that have begun and whose receivers are not done.
        for time, value in timeline.counters["bytes in flight"][::7]:
            self.assertEqual(value, sum(arrow.send.arguments["bytes"] for arrow in timeline.arrows
                                        if arrow.send.begin <= time < arrow.receive.end))

    def test_the_steps_that_are_held_have_their_arrows_alone(self):
        arguments = (*self.ARGUMENTS, "--model=mlp", "--strategy=ring", "--replicas=3")
        whole, _ = self.timeline(*arguments, "--steps=6")
        part, report = self.timeline(*arguments, "--steps=6", "--timeline-steps=3:4")
        in_steps = lambda timeline: [arrow for arrow in timeline.arrows if arrow.send.arguments["of"].startswith("bucket")]
        self.assertEqual(3 * len(in_steps(part)), len(in_steps(whole)))
        self.assertEqual(len({arrow.send.arguments["sequence"] for arrow in part.arrows}), 2 * len(report["communication"]["buckets"]))

    def test_examples_per_second_are_those_of_the_steps(self):
        timeline, _ = self.timeline("--model=mlp", "--dataset=synthetic:examples=67", "--batch=33", "--replicas=2", "--strategy=ring",
                                    "--threads=1", "--validation=off")
        values = timeline.counters["examples per second"]
        # The area below the counter is what was trained, but for the rounding of each step's rate: an example a second.
        trained = sum(value * (until - time) for (time, value), (until, _) in zip(values, values[1:])) * 1e-9
        seconds = sum(step.end - step.begin for rank in range(2) for step in timeline.steps(rank).values()) * 1e-9
        self.assertAlmostEqual(trained, 67, delta=0.001 + 2 * seconds)

    def test_what_sends_no_messages_has_no_arrows(self):
        for strategy in ("one-device", "central-storage"):
            timeline, _ = self.timeline(*self.ARGUMENTS, "--model=mlp", "--strategy=" + strategy, "--steps=3",
                                        "--replicas=" + ("1" if strategy == "one-device" else "2"))
            self.assertEqual(timeline.arrows, [])
            self.assertEqual(list(timeline.counters), ["examples per second"])


class Shares(TimelineTest):
    def test_uneven_shares_and_an_empty_one(self):
        timeline, _ = self.timeline("--model=mlp", "--dataset=synthetic:examples=67", "--batch=33", "--replicas=2",
                                    "--strategy=ring", "--threads=1", "--validation=off")
        for rank, sizes in enumerate(((17, 17, 1), (16, 16, 0))):
            for number, size in enumerate(sizes, 1):
                inside = timeline.rank(rank).within(timeline.steps(rank)[number])
                forward = {one.arguments["examples"] for one in inside if one.category == "forward"}
                self.assertEqual(forward, {size} if size else set())
                self.assertEqual(len([one for one in inside if one.name == "zero gradients"]), 0 if size else 2)  # a bucket each
                self.assertGreater(len([one for one in inside if one.name == "update"]), 0)

    def test_what_auto_chose_is_named(self):
        timeline, report = self.timeline("--model=mlp", SYNTHETIC, "--strategy=auto", "--replicas=2", "--threads=1", "--steps=3")
        for index, bucket in enumerate(report["communication"]["buckets"]):
            runs = [one for track in timeline.of("rank 0", "communication") for one in track.named(f"bucket {index}")]
            self.assertEqual({one.arguments["algorithm"] for one in runs}, {bucket["algorithm"]})
            self.assertNotEqual(bucket["algorithm"], "auto")

    def test_replicas_that_wait_for_nobody(self):
        timeline, report = self.timeline("--model=mlp", SYNTHETIC, "--strategy=parameter-server:mode=async,servers=2",
                                         "--replicas=3", "--threads=1", "--batch=30")
        for rank in range(3):
            self.assertEqual(sorted(timeline.steps(rank)), list(range(1, report["steps"] + 1)))
        servers = timeline.of("parameter-server")
        self.assertEqual(len({track.name for track in servers}), 2)
        for track in servers:
            self.assertGreater(len([one for one in track.spans if one.category == "update"]), report["steps"])

    def waits(self, strategy, whom, hook):
        """Waits of rank 0 for `whom`, all of them within a hook, from the second step on; rank 1 is slow."""
        # Much slower than rank 0's own steps, which ThreadSanitizer makes ten times as long.
        delay = 300 if THREADS_ARE_WATCHED else 30
        timeline, _ = self.timeline("--model=mlp", "--dataset=synthetic:examples=200", "--replicas=2", "--threads=1", "--batch=20",
                                    "--validation=off", f"--strategy=parameter-server:{strategy},delay_replica=1,delay_ms={delay}")
        track = timeline.rank(0)
        hooks = [one for one in track.named(hook) if one.begin >= timeline.steps(0)[2].begin]
        self.assertEqual(len(hooks), 9)
        found = [one for outer in hooks for one in track.within(outer) if one.name == "wait for the " + whom]
        steps = list(timeline.steps(0).values())[1:]
        everywhere = [one for one in track.named("wait for the " + whom) if any(step.holds(one) for step in steps)]
        self.assertEqual(len(found), len(everywhere))
        return found

    def test_whom_a_worker_waits_for(self):
        self.assertGreater(len(self.waits("mode=bounded,staleness=0", "others", "begin_step")), 3)
        self.assertGreater(len(self.waits("mode=bounded,staleness=3", "others", "begin_step")), 1)
        self.assertGreater(len(self.waits("mode=sync", "others", "end_step")), 3)
        self.assertEqual(self.waits("mode=async", "others", "begin_step"), [])
        self.assertGreater(len(self.waits("mode=async", "servers", "begin_step")), 0)

    def test_one_device_has_no_communication(self):
        timeline, _ = self.timeline("--model=mlp", SYNTHETIC, "--strategy=one-device", "--steps=3", "--validation=off")
        self.assertEqual(timeline.of("rank 0", "communication"), [])
        self.assertEqual(len(timeline.steps(0)), 3)

    def test_parts_of_a_share_are_added(self):
        timeline, _ = self.timeline("--model=mlp", SYNTHETIC, "--microbatches=2", "--batch=10", "--steps=2", "--validation=off")
        for step in timeline.steps(0).values():
            inside = timeline.rank(0).within(step)
            self.assertEqual({one.arguments["examples"] for one in inside if one.category == "forward"}, {5})
            self.assertGreater(len([one for one in inside if one.name == "add parts"]), 0)

    def test_fashion_mnist(self):
        self.need(FASHION + "/train-images-idx3-ubyte.gz")
        timeline, report = self.timeline("--model=cnn", "--dataset=fashion-mnist:limit=300", "--replicas=2", "--threads=1")
        self.assertEqual(len(timeline.steps(1)), report["steps"])


class Window(TimelineTest):
    ARGUMENTS = ("--model=mlp", SYNTHETIC, "--replicas=2", "--strategy=ring", "--batch=20", "--threads=1")

    def test_only_the_steps_that_were_asked_for(self):
        plain = self.train(*self.ARGUMENTS)
        path = self.path("t.json")
        outcome = self.lockstep("train", *self.ARGUMENTS, "--timeline=" + path, "--timeline-steps=3:5")
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertIn(f"timeline: {path} holds steps 3-5 of 20\n", outcome.out)
        timeline = Timeline(path)
        for rank in range(2):
            steps = timeline.steps(rank)
            self.assertEqual(sorted(steps), [3, 4, 5])
            self.assertEqual(len(timeline.rank(rank).named("epoch 1")), 1)
            runs = [one for track in timeline.of(f"rank {rank}", "communication") for one in track.spans]
            self.assertEqual(len(runs), 3 * len(plain["communication"]["buckets"]))
        begin = min(timeline.steps(rank)[3].begin for rank in range(2))
        end = max(timeline.steps(rank)[5].end for rank in range(2))
        epoch, = timeline.of("worker", "main")[0].named("epoch 1")
        self.assertLessEqual(epoch.begin, begin)
        self.assertGreaterEqual(epoch.end, end)
        self.assertEqual(timeline.of("worker", "main")[0].named("validation"), [])
        windowed, report = self.timeline(*self.ARGUMENTS, "--timeline-steps=2:2")
        self.assertEqual(sorted(windowed.steps(0)), [2])
        self.assertEqual(report["losses"], plain["losses"])

    def test_steps_behind_the_end_are_said_to_be_missing(self):
        path = self.path("t.json")
        outcome = self.lockstep("train", "--quiet", *self.ARGUMENTS, "--timeline=" + path, "--timeline-steps=100:200")
        self.assertEqual(outcome.code, DONE, outcome.err)
        self.assertIn("holds no step: the run ended at step 20", outcome.err)
        self.assertEqual([track.spans for track in Timeline(path).tracks.values() if track.spans], [])

    @unittest.skipIf(THREADS_ARE_WATCHED, "slow under threadsanitizer")
    def test_a_long_run_keeps_its_first_steps(self):
        path = self.path("t.json")
        outcome = self.lockstep("train", "--model=linear", "--dataset=synthetic:examples=2000,shape=2,classes=0", "--batch=1",
                                "--epochs=40", "--validation=off", "--threads=1", "--timeline=" + path)
        self.assertEqual(outcome.code, DONE, outcome.err)
        held, steps = map(int, re.search(r"holds steps 1-(\d+) of (\d+)$", outcome.out, re.M).groups())
        self.assertEqual(steps, 80000)
        self.assertLess(held, steps)
        spans, seen = 0, 0
        with open(path) as file:  # an event a line: no need to hold them all
            for line in file:
                if line.startswith('{"ph":"X"'):
                    event = json.loads(line.rstrip(",]\n"))
                    spans += 1
                    if event["cat"] == "step":
                        seen += 1
                        self.assertEqual(event["name"], f"step {seen}")
        self.assertEqual(seen, held)
        self.assertGreater(spans, 200000)
        self.assertLessEqual(spans, 1000000)


class Ends(TimelineTest):
    @unittest.skipIf(THREADS_ARE_WATCHED, "ThreadSanitizer holds signals back while the main thread waits")
    def test_an_interrupted_run_writes_what_it_has(self):
        path = self.path("t.json")
        process = subprocess.Popen([LOCKSTEP, "train", "--model=mlp", "--dataset=synthetic:examples=2000", "--epochs=1000000",
                                    "--validation=off", "--replicas=2", "--timeline=" + path],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        while not process.stdout.readline().startswith("Epoch"):
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, err)
        self.assertIn("timeline: ", out)
        timeline = Timeline(path)
        self.assertGreater(len(timeline.steps(0)), 10)
        self.assertEqual(sorted(timeline.steps(0)), sorted(timeline.steps(1)))
        self.assertEqual([one for track in timeline.tracks.values() for one in track.spans if "unfinished" in one.arguments], [])

    def test_a_failed_run_writes_what_it_has(self):
        path = self.path("t.json")
        outcome = self.lockstep("train", "--quiet", "--model=mlp", SYNTHETIC, "--replicas=2", "--optimizer=sgd:learning_rate=1e30",
                                "--timeline=" + path)
        self.assertEqual(outcome.code, FAILED, outcome.err)
        self.assertIn("not finite", outcome.err)
        timeline = Timeline(path)
        for rank in range(2):
            self.assertEqual(sorted(timeline.steps(rank)), [1, 2])

    def test_an_unwritable_path_is_refused_before_training(self):
        for path in (self.path("missing/t.json"), self.folder):
            outcome = self.refused(BAD_INPUT, "train", "--model=mlp", SYNTHETIC, "--timeline=" + path, says=("--timeline",))
            self.assertNotIn("Epoch", outcome.out)

    def test_a_run_that_does_not_begin_leaves_the_file_alone(self):
        path = self.path("t.json")
        with open(path, "w") as file:
            file.write("mine")
        outcome = self.lockstep("train", "--model=mlp", "--dataset=mnist:dir=" + self.path("missing"), "--timeline=" + path)
        self.assertEqual(outcome.code, BAD_INPUT, outcome.err)
        with open(path) as file:
            self.assertEqual(file.read(), "mine")
        self.assertEqual(os.listdir(self.folder), ["t.json"])

    def test_options_that_make_no_sense(self):
        train = ("train", "--model=mlp", SYNTHETIC)
        same = self.path("same")
        for text in ("0:3", "3:2", "x", "5", "1:2:3", "1:", ":4", "-1:4", "1:99999999999999999999", " 1:2", ""):
            self.refused(USAGE, *train, "--timeline=" + same, "--timeline-steps=" + text, says=("--timeline-steps",))
        self.refused(USAGE, *train, "--timeline-steps=1:2", says=("--timeline-steps", "--timeline"))
        for other in ("report", "save-weights"):
            self.refused(USAGE, *train, "--timeline=" + same, f"--{other}={same}", says=("same file", other))
        self.assertEqual(os.listdir(self.folder), [])


class Names(TimelineTest):
    def test_a_layer_may_be_called_anything(self):
        name = 'caf\u00e9 "\\ \u4e2d'
        layers = [{"class_name": "InputLayer", "config": {"batch_shape": [None, 4], "name": "input"}},
                  {"class_name": "Dense", "config": {"name": name, "units": 3}}]
        model = self.path("model.json")
        write_json(model, {"class_name": "Sequential", "config": {"name": "odd", "layers": layers}})
        timeline, _ = self.timeline("--model=" + model, "--dataset=synthetic:examples=20,shape=4,classes=3", "--steps=1",
                                    "--loss=sparse_categorical_crossentropy:from_logits=true", "--validation=off")
        names = [one.name for one in timeline.rank(0).within(timeline.steps(0)[1])]
        self.assertIn(name + " forward", names)


if __name__ == "__main__":
    main()
