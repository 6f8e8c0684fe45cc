"""Makes and reads Whisper files with Graphite's own library.

    reference.py make DIR SEED NOW    makes files in DIR, and prints the points (times, and bits of values) that an import must find in each
    reference.py fetch DIR NOW        prints what fetch answers for the range of each archive of each file
    reference.py read DIR NOW         prints header and points of all archives of all files in DIR
    reference.py find DIR NAME...     prints whether graphite-web and carbon find the file of each series in DIR, in the order of
                                      the names: by the name ("named"), by its hash ("hashed") or not ("missing")
"""

import json
import os
import random
import struct
import sys

import whisper

SHAPES = [
    [(60, 120)],
    [(10, 60), (60, 180), (600, 200)],
    [(1, 120), (10, 90), (60, 60), (3600, 50)],
    [(60, 1440), (300, 4032), (3600, 4380)],
]


def files(root):
    for folder, _, names in sorted(os.walk(root)):
        for name in sorted(names):
            path = os.path.join(folder, name)
            yield os.path.relpath(path, root), path


def archive(path, step, retention, now):
    """The points of one archive, as fetch shows them at this time."""
    (start, _, step), values = whisper.fetch(path, now - retention, now, now=now, archiveToSelect=step)
    return {start + step * i: value for i, value in enumerate(values) if value is not None}


def bits(points):
    """The values as their bits, because JSON may round them."""
    return {at: struct.unpack("!Q", struct.pack("!d", value))[0] for at, value in points.items()}


def make(root, seed, now):
    draw = random.Random(seed)
    names = ["load", "servers/web1/cpu", "servers/web1/cpu/user", "servers/web 2/höhe", "_tagged/0a1/b2c/disk_DOT_used;host=a;rack=b"]
    for number in range(24):
        shape, factor = draw.randrange(len(SHAPES)), draw.choice([0.0, 0.1, 0.5, 1.0])
        method = draw.choice(list(whisper.aggregationMethods))
        # the name says how the file is made
        name = names[number] if number < len(names) else "many/s%d/%s/x%s/m%03d" % (shape, method, str(factor).replace(".", "_"), number)
        path = os.path.join(root, name + ".wsp")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shape = SHAPES[shape]
        whisper.create(path, list(shape), factor, method)
        if number == 7:
            continue  # a file without points
        fill(draw, path, shape, now)


def fill(draw, path, shape, now):
    """Writes points in the order of time, each at its own time, so that coarser archives are made as in carbon."""
    reach = min(shape[-1][0] * shape[-1][1], 40 * shape[0][0] * shape[0][1])
    at = now - draw.randrange(1, reach)
    end = now - draw.choice([0, draw.randrange(reach)])
    while at <= end:
        count = draw.randrange(1, 300)
        points = []
        for _ in range(count):
            points.append((at, round(draw.uniform(-1000, 1000), draw.randrange(4))))
            at += draw.choice([1, 1, 1, 2, 9]) * shape[0][0]
            if at > end:
                break
        whisper.update_many(path, points, now=points[-1][0])
        at += draw.choice([0, 0, reach // 50])
    # history that only the coarse archives have, as whisper-fill and resize leave it
    if len(shape) > 1 and draw.random() < 0.5:
        last = shape[-1]
        old = [(now - last[0] * draw.randrange(1, last[1]), draw.uniform(-9, 9)) for _ in range(20)]
        before = at - reach - shape[-2][0] * shape[-2][1]
        whisper.update_many(path, [(t, v) for t, v in old if t < before], now=now)


def written(path, archives):
    """The times of all points in the file, whatever their age."""
    with open(path, "rb") as file:
        content = file.read()
    for a in archives:
        for number in range(a["points"]):
            yield struct.unpack_from("!L", content, a["offset"] + 12 * number)[0]


def finest(path):
    """The finest value of each time."""
    archives = whisper.info(path)["archives"]
    newest = max(written(path, archives))
    merged = {}
    for number, a in enumerate(archives):
        found = archive(path, a["secondsPerPoint"], a["retention"], newest) if newest else {}
        covered = newest - archives[number - 1]["retention"] if number else None
        for at, value in found.items():
            finer = [t for t in range(at, at + a["secondsPerPoint"]) if t in merged]
            if number == 0:
                merged[at] = value
            elif at <= covered:
                for t in finer:
                    del merged[t]
                merged[at] = value
            elif not finer:
                merged[at] = value
    return merged


def sure(archives, newest):
    """For each archive, the time after which an import keeps all of its values.

    Where an archive begins, the next coarser value replaces the values of its slot: those of this archive, and those of all
    finer ones that reach into the slot.
    """
    ends = []
    for a, coarser in zip(archives, archives[1:] + archives[-1:]):
        oldest, step = newest - a["retention"], coarser["secondsPerPoint"]
        ends.append(oldest - oldest % step + step - 1)
    return [max(ends[number:]) for number in range(len(ends))]


def unsure(path, archives, newest):
    """For each archive, the slots that contain a value which an import cannot tell from history.

    Such a value stands alone at the beginning of a coarser slot, and Whisper drops it there for its xFilesFactor. It is
    shown like history, and consolidated further.
    """
    merged = finest(path)
    own = [archive(path, a["secondsPerPoint"], a["retention"], newest) if newest else {} for a in archives]
    found = [set() for _ in archives]
    for number, a in enumerate(archives[1:], 1):
        slots = {}
        for at in merged:
            slots.setdefault(at - at % a["secondsPerPoint"], []).append(at)
        for at, times in slots.items():
            if times == [at] and not any(points.get(at) == merged[at] for points in own[number:]):
                for coarser in range(number, len(archives)):
                    found[coarser].add(at - at % archives[coarser]["secondsPerPoint"])
    return [sorted(slots) for slots in found]


def read(root, now):
    found = {}
    for name, path in files(root):
        info = whisper.info(path)
        newest = max(written(path, info["archives"]))
        found[name] = {
            "sure": sure(info["archives"], newest),
            "unsure": unsure(path, info["archives"], newest),
            "method": info["aggregationMethod"],
            "xff": info["xFilesFactor"],
            "archives": [[a["secondsPerPoint"], a["points"]] for a in info["archives"]],
            "points": [bits(archive(path, a["secondsPerPoint"], a["retention"], now)) for a in info["archives"]],
        }
    return found


def fetch(root, now):
    found = []
    for name, path in files(root):
        archives = whisper.info(path)["archives"]
        newest = max(written(path, archives))
        unsure_slots = unsure(path, archives, newest)
        for number, (a, sure_at) in enumerate(zip(archives, sure(archives, newest))):
            start = now - a["retention"]
            (_, _, step), _ = answer = whisper.fetch(path, start, now, now=now)
            points = {answer[0][0] + step * i: v for i, v in enumerate(answer[1]) if v is not None}
            found.append({"file": name, "from": start, "step": step, "sure": sure_at, "unsure": unsure_slots[number], "points": points})
    return found


def find(root, names):
    from graphite.tags.utils import TaggedSeries  # carbon has the same class

    found = []
    for name in names:
        path = TaggedSeries.parse(name).path
        places = [(kind, TaggedSeries.encode(path, os.sep, hash_only=hashed)) for kind, hashed in [("named", False), ("hashed", True)]]
        kinds = [kind for kind, place in places if os.path.isfile(os.path.join(root, place + ".wsp"))]
        found.append(kinds[0] if kinds else "missing")
    return found


if sys.argv[1] == "find":
    print(json.dumps(find(sys.argv[2], sys.argv[3:])))
elif sys.argv[1] == "fetch":
    print(json.dumps(fetch(sys.argv[2], int(sys.argv[3]))))
elif sys.argv[1] == "make":
    root, seed, now = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    make(root, seed, now)
    print(json.dumps({name: bits(finest(path)) for name, path in files(root)}))
else:
    print(json.dumps(read(sys.argv[2], int(sys.argv[3]))))
