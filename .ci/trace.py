"""Checks an execution trace with the protobuf classes of Perfetto (package `perfetto` of PyPI).

Usage: trace.py TRACE COUNTS. COUNTS is the output of the example `trace`, which contains the counters of the run. The
script checks that no event is lost, that all slices nest, that each arrow has one begin and one end, and that the
numbers of events in the trace equal the counters.

TRACE may also be a flight record. COUNTS is then the output of the example `flight`. Newer events have overwritten the
first events of a flight record, so the script checks only that all slices nest, and that no arrow has two begins or two
ends.
"""

import collections
import re
import sys

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

# The counter that belongs to each mark.
COUNTERS = {"spawn": "spawned", "send": "messages", "yield": "yields", "completion": "completions"}


def main(path, counts):
    counters = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", open(counts).read())}
    trace = Trace()
    trace.ParseFromString(open(path, "rb").read())
    categories, names, tracks, events = {}, {}, {}, []
    for packet in trace.packet:
        categories.update((entry.iid, entry.name) for entry in packet.interned_data.event_categories)
        names.update((entry.iid, entry.name) for entry in packet.interned_data.event_names)
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
        if packet.HasField("track_event"):
            event = packet.track_event
            assert event.track_uuid in tracks, "an event without a track"
            category = [categories[iid] for iid in event.category_iids]
            events.append((packet.timestamp, event, category, names.get(event.name_iid)))
    events.sort(key=lambda event: event[0])
    found, stacks = collections.Counter(), collections.defaultdict(list)
    begins, ends = collections.Counter(), collections.Counter()
    for _, event, category, name in events:
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stacks[event.track_uuid].append(name)
            found["steps"] += category == ["step"]
        elif event.type == TrackEvent.TYPE_SLICE_END:
            assert stacks[event.track_uuid], f"{tracks[event.track_uuid]}: an end without a begin"
            stacks[event.track_uuid].pop()
        elif event.type == TrackEvent.TYPE_INSTANT:
            found[COUNTERS.get(name, name)] += 1
        begins.update(event.flow_ids)
        ends.update(event.terminating_flow_ids)
    left = {tracks[track]: stack for track, stack in stacks.items() if stack}
    assert not left, f"slices without an end: {left}"
    assert set(begins.values()) | set(ends.values()) <= {1}, "an arrow with two begins or two ends"
    if "overwritten" in counters:
        assert found["steps"] and found["messages"] and begins & ends, "the record is empty"
    else:
        assert not counters["lost"], f"{counters['lost']} events are lost, so their counts cannot be compared"
        assert begins == ends and set(begins.values()) <= {1}, "an arrow without a begin or an end"
        for name in ["steps", "spawned", "messages", "yields", "completions"]:
            assert found[name] == counters[name], f"{name}: {found[name]} in the trace, {counters[name]} counted"
    print(f"{len(events)} events on {len(tracks)} tracks, {sum(begins.values())} arrows, {found['steps']} steps")


main(*sys.argv[1:])
