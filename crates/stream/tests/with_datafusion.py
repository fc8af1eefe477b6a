"""Runs queries with DataFusion over rows that are given: one JSON object on a line, one reply on a line."""

import decimal
import json
import sys

import datafusion
import pyarrow as pa

SCHEMA = pa.schema([
    ("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64()), ("m", pa.decimal128(10, 2)), ("s", pa.string()),
    ("f", pa.bool_()), ("d", pa.float64()), ("ts", pa.int64()),
])


def table(rows):
    columns = list(zip(*rows)) if rows else [[] for _ in SCHEMA]
    arrays = []
    for values, field in zip(columns, SCHEMA):
        if field.name == "m":
            values = [None if value is None else decimal.Decimal(value) for value in values]
        arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def text(value):
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return value


for line in sys.stdin:
    asked = json.loads(line)
    try:
        # Some partitions, so that it does in parallel what it can; a small batch each.
        context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(asked["partitions"]))
        for name in ("t", "u"):
            context.register_record_batches(name, [[table(asked[name])]])
        rows = []
        for batch in context.sql(asked["sql"]).collect():
            columns = [column.to_pylist() for column in batch.columns]
            rows.extend([text(value) for value in row] for row in zip(*columns))
        reply = {"rows": rows}
    except BaseException as error:  # Panics of DataFusion come as such.
        reply = {"error": str(error)}
    print(json.dumps(reply), flush=True)
