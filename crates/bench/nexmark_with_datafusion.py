"""Nexmark's queries with DataFusion, over the tables that are given as CSV.

`directory partitions rounds` measures: tables are in memory before, and only running a query counts. One JSON object on
standard output: seconds of each round by query.

`directory` alone compares: `qN.printed` there has what the sink `print` showed of query N. What its changes leave is to be what
DataFusion gives, as a bag of rows. One JSON object on standard output: by query how many rows DataFusion has, and how many
are in one result and not in the other.

Windows are arithmetic over the time, sessions islands between gaps, and processing time is one window of all.
"""

import collections
import json
import re
import sys
import time

import datafusion
import pyarrow as pa
import pyarrow.csv

TEXTS = {"name", "emailAddress", "creditCard", "city", "state", "extra", "itemName", "description", "channel", "url"}
COLUMNS = {
    "person": ["id", "name", "emailAddress", "creditCard", "city", "state", "dateTime", "extra"],
    "auction": ["id", "itemName", "description", "initialBid", "reserve", "dateTime", "expires", "seller", "category",
                "extra"],
    "bid": ["auction", "bidder", "price", "channel", "url", "dateTime", "extra"],
}

RANKS = """
  COUNT(*) AS total_bids, COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids"""
DISTINCT = "".join(f""",
  COUNT(DISTINCT {what}) AS total_{what}s, COUNT(DISTINCT {what}) FILTER (WHERE price < 10000) AS rank1_{what}s,
  COUNT(DISTINCT {what}) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_{what}s,
  COUNT(DISTINCT {what}) FILTER (WHERE price >= 1000000) AS rank3_{what}s""" for what in ("bidder", "auction"))
DAY = "to_char(ts, '%Y-%m-%d')"


def window(seconds):
    return f"date_bin(INTERVAL '{seconds} seconds', ts)"


# Each bid in five windows of 10 s that begin every 2 s.
STEPS = ", ".join(f"INTERVAL '{seconds} seconds'" for seconds in (0, 2, 4, 6, 8))
HOP = f"""SELECT auction, {window(2)} - n AS w FROM bid CROSS JOIN (SELECT unnest([{STEPS}]) AS n)"""

QUERIES = {
    0: "SELECT auction, bidder, price, ts, extra FROM bid",
    1: "SELECT auction, bidder, 0.908 * price AS price, ts, extra FROM bid",
    2: "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    3: """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
      WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    5: f"""WITH counts AS (SELECT auction, w, COUNT(*) AS num FROM ({HOP}) GROUP BY auction, w)
      SELECT c.auction, c.num FROM counts c JOIN (SELECT w, MAX(num) AS most FROM counts GROUP BY w) m
        ON c.w = m.w AND c.num >= m.most""",
    7: f"""SELECT b.auction, b.bidder, b.price, b.ts, b.extra FROM bid b
      JOIN (SELECT MAX(price) AS most, {window(10)} + INTERVAL '10 seconds' AS ended FROM bid GROUP BY {window(10)}) m
        ON b.price = m.most WHERE b.ts BETWEEN m.ended - INTERVAL '10 seconds' AND m.ended""",
    8: f"""SELECT p.id, p.name, p.w FROM (SELECT id, name, {window(10)} AS w FROM person GROUP BY id, name, {window(10)}) p
      JOIN (SELECT seller, {window(10)} AS w FROM auction GROUP BY seller, {window(10)}) a
        ON p.id = a.seller AND p.w = a.w""",
    10: f"""SELECT auction, bidder, price, ts, extra, {DAY} AS dt, to_char(ts, '%H:%M') AS hm FROM bid""",
    11: """WITH marked AS (SELECT bidder, ts, CASE WHEN ts - LAG(ts) OVER (PARTITION BY bidder ORDER BY ts)
        <= INTERVAL '10 seconds' THEN 0 ELSE 1 END AS first FROM bid),
      numbered AS (SELECT bidder, ts, SUM(first) OVER (PARTITION BY bidder ORDER BY ts) AS session FROM marked)
      SELECT bidder, COUNT(*), MIN(ts), MAX(ts) + INTERVAL '10 seconds' FROM numbered GROUP BY bidder, session""",
    12: "SELECT bidder, COUNT(*) FROM bid GROUP BY bidder",
    13: """SELECT b.auction, b.bidder, b.price, b.ts, s.value FROM bid b
      JOIN side_input s ON b.auction % 10000 = s.key""",
    14: """SELECT auction, bidder, 0.908 * price AS price,
        CASE WHEN date_part('hour', ts) BETWEEN 8 AND 18 THEN 'dayTime'
          WHEN date_part('hour', ts) <= 6 OR date_part('hour', ts) >= 20 THEN 'nightTime' ELSE 'otherTime' END,
        ts, extra, length(extra) - length(replace(extra, 'c', ''))
      FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    15: f"SELECT {DAY} AS day, {RANKS}{DISTINCT} FROM bid GROUP BY {DAY}",
    16: f"""SELECT channel, {DAY} AS day, MAX(to_char(ts, '%H:%M')), {RANKS}{DISTINCT}
      FROM bid GROUP BY channel, {DAY}""",
    17: f"""SELECT auction, {DAY} AS day, {RANKS}, MIN(price), MAX(price), AVG(price), SUM(price)
      FROM bid GROUP BY auction, {DAY}""",
    18: """SELECT auction, bidder, price, channel, url, ts, extra FROM (SELECT *, ROW_NUMBER() OVER
      (PARTITION BY bidder, auction ORDER BY ts DESC) AS n FROM bid) WHERE n <= 1""",
    19: """SELECT auction, bidder, price, ts, n FROM (SELECT *, ROW_NUMBER() OVER
      (PARTITION BY auction ORDER BY price DESC) AS n FROM bid) WHERE n <= 10""",
    20: """SELECT b.auction, b.bidder, b.price, b.channel, a."itemName", a.seller, a.category
      FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    21: """SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
        WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
        ELSE (regexp_match(url, '(&|^)channel_id=([^&]*)'))[2] END
      FROM bid WHERE regexp_match(url, '(&|^)channel_id=([^&]*)') IS NOT NULL
        OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    22: """SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5),
      split_part(url, '/', 6) FROM bid""",
}


def table(directory, name):
    types = {column: pa.string() if column in TEXTS else pa.int64() for column in COLUMNS[name]}
    types.update({column: pa.timestamp("ms") for column in ("dateTime", "expires") if column in types})
    read = pyarrow.csv.read_csv(
        f"{directory}/{name}.csv",
        read_options=pyarrow.csv.ReadOptions(column_names=COLUMNS[name]),
        convert_options=pyarrow.csv.ConvertOptions(column_types=types),
    )
    return read.rename_columns(["ts" if column == "dateTime" else column for column in COLUMNS[name]])


def tables_of(directory):
    tables = {name: table(directory, name) for name in COLUMNS}
    keys = list(range(0, 10_000, 3))
    tables["side_input"] = pa.table({"key": pa.array(keys, pa.int64()), "value": [f"side {key}" for key in keys]})
    return tables


def frame(tables, partitions, query):
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(partitions))
    for name, rows in tables.items():
        batches = rows.to_batches(max_chunksize=8192)
        # One part for each partition, so that each has its share.
        context.register_record_batches(name, [batches[part::partitions] for part in range(partitions)])
    return context.sql(query)


def measure(directory, partitions, rounds):
    tables, found = tables_of(directory), {}
    for number, query in QUERIES.items():
        found[number] = []
        for _ in range(rounds):
            asked = frame(tables, partitions, query)
            began = time.monotonic()
            for _ in asked.execute_stream():
                pass
            found[number].append(time.monotonic() - began)
        print(f"q{number}: {found[number]}", file=sys.stderr)
    return found


# Columns that ORDER BY leaves open are not compared: several bids of one millisecond or price may come in any order.
COMPARED = {18: [0, 1, 5], 19: [0, 2, 4]}


def as_printed(value):
    if value is None:
        return "NULL"
    if hasattr(value, "isoformat"):
        return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03}"
    return str(value)


def batch(tables, number):
    # As in the dialect: prices are DECIMAL, the mean of integers is an integer, and a missing part is NULL.
    query = QUERIES[number].replace("0.908 * price", "arrow_cast(0.908, 'Decimal128(4, 3)') * price")
    query = query.replace("AVG(price)", "SUM(price) / COUNT(price)")
    query = re.sub(r"(split_part\([^)]*\))", r"nullif(\1, '')", query)
    rows = collections.Counter()
    for part in frame(tables, 2, query).execute_stream():
        columns = [[as_printed(value) for value in column.to_pylist()] for column in part.to_pyarrow().columns]
        columns = [columns[column] for column in COMPARED.get(number, range(len(columns)))]
        rows.update(", ".join(row) for row in zip(*columns))
    return rows


def printed(directory, number):
    rows = collections.Counter()
    with open(f"{directory}/q{number}.printed") as lines:
        for line in lines:
            kind, row = re.fullmatch(r"([+-])[IUD]\[(.*)\]\n", line).groups()
            if number in COMPARED:
                fields = row.split(", ")
                row = ", ".join(fields[field] for field in COMPARED[number])
            rows[row] += 1 if kind == "+" else -1
    if number == 12:
        # Windows by processing time: all counts of a bidder are added up.
        bidders = collections.Counter()
        for row, times in rows.items():
            bidder, count = row.split(", ")[:2]
            bidders[bidder] += int(count) * times
        rows = collections.Counter(f"{bidder}, {count}" for bidder, count in bidders.items())
    return rows


def compare(directory):
    tables, found = tables_of(directory), {}
    for number in QUERIES:
        wanted, has = batch(tables, number), printed(directory, number)
        has.subtract(wanted)
        differ = {row: times for row, times in has.items() if times}
        found[number] = {"rows": wanted.total(), "differ": sum(map(abs, differ.values()))}
        print(f"q{number}: {found[number]}", *list(differ.items())[:4], sep="\n  ", file=sys.stderr)
    return found


if len(sys.argv) > 2:
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
else:
    print(json.dumps(compare(sys.argv[1])))
