"""Parquet through the node: written at the origin and through the node, read with projections and filters by PyArrow,
Polars and DuckDB. What was read once is read again without a word to the origin."""

import contextlib
import json
import pathlib
import sys
import tempfile
import time
import urllib.request

import duckdb
import duckdb_extension_httpfs
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq

setup = json.load(sys.stdin)
failures = 0


def check(name, got, want):
    global failures
    if got != want:
        failures += 1
        print(f"FAIL {name}: got {got!r}, want {want!r}")


def counted(*series):
    """The metrics of these beginnings, when the node has ended all that it does: what it reads ahead goes on after an
    answer."""
    under = ("ashlar_requests_in_flight ", "ashlar_blocks_pending ", "ashlar_origin_requests_in_flight ")
    quiet = 0
    while quiet < 2:  # in a row: metrics of one moment are not read at one
        with urllib.request.urlopen(setup["metrics"]) as r:
            lines = r.read().decode().splitlines()
        sums = [sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(s)) for s in (*under, *series)]
        quiet = 0 if any(sums[:3]) else quiet + 1
        time.sleep(0.01)
    return sums[3:]


@contextlib.contextmanager
def reading(who, temperature):
    """Around reads: the node answers them, those of the second time without a GET at the origin."""
    answers, asked = 'ashlar_requests_total{operation="GetObject"', 'ashlar_origin_requests_total{operation="get"'
    before = counted(answers, asked)
    yield
    after = counted(answers, asked)
    check(f"{who}, {temperature}, reads through the node", after[0] > before[0], True)
    if temperature == "warm":
        check(f"{who}, warm, GETs at the origin", after[1] - before[1], 0)


def filesystem(side):
    return fs.S3FileSystem(
        access_key=side["access_key"],
        secret_key=side["secret_key"],
        endpoint_override=side["endpoint"].removeprefix("http://"),
        scheme="http",
        region=setup["region"],
    )


def table(part):
    n = 200_000
    ids = range(part * n, (part + 1) * n)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([f"name-{i * 2654435761 % 1000003}" for i in ids]),
            "value": pa.array([(i * 40503 % 65537) / 7 for i in ids]),
            "pad": pa.array([f"{i * 0x9E3779B97F4A7C15 % 2**64:016x}" * 2 for i in ids]),
        }
    )


origin, node = filesystem(setup["origin"]), filesystem(setup["node"])
bucket = setup["bucket"]
parts = [table(i) for i in range(3)]
for i, t in enumerate(parts):
    with origin.open_output_stream(f"{bucket}/table/part-{i}.parquet") as f:
        pq.write_table(t, f, row_group_size=25_000, compression="zstd")
whole = pa.concat_tables(parts)


def pyarrow(temperature):
    f = pq.ParquetFile(node.open_input_file(f"{bucket}/table/part-1.parquet"))
    check(f"{temperature}, row groups", f.num_row_groups, 8)
    check(f"{temperature}, one row group", f.read_row_group(5, columns=["id", "value"]).equals(
        parts[1].select(["id", "value"]).slice(5 * 25_000, 25_000)), True)
    got = pq.read_table(f"{bucket}/table/part-2.parquet", filesystem=node, columns=["name"])
    check(f"{temperature}, one column", got.equals(parts[2].select(["name"])), True)
    data = ds.dataset(f"{bucket}/table", filesystem=node, format="parquet")
    got = data.to_table(columns=["id", "pad"], filter=pc.field("id") >= 450_000).sort_by("id")
    check(f"{temperature}, filter", got.equals(whole.select(["id", "pad"]).slice(450_000)), True)
    check(f"{temperature}, everything", data.to_table().sort_by("id").equals(whole), True)
    for i in range(3):
        path = f"{bucket}/table/part-{i}.parquet"
        a, b = origin.open_input_stream(path).read(), node.open_input_stream(path).read()
        check(f"{temperature}, bytes of part {i}", a == b, True)


def written(who, folder):
    """Compares what was written through the node, as the origin has it."""
    got = ds.dataset(f"{bucket}/{folder}", filesystem=origin, format="parquet").to_table().sort_by("id")
    check(f"{who}, written", got.select(whole.column_names).cast(whole.schema).equals(whole), True)


for temperature in ("cold", "warm"):
    with reading("pyarrow", temperature):
        pyarrow(temperature)
ds.write_dataset(whole, f"{bucket}/by-pyarrow", filesystem=node, format="parquet")
written("pyarrow", "by-pyarrow")

side = setup["node"]
options = {
    "aws_endpoint_url": side["endpoint"],
    "aws_allow_http": "true",
    "aws_access_key_id": side["access_key"],
    "aws_secret_access_key": side["secret_key"],
    "aws_region": setup["region"],
}


def polars(temperature):
    tables = pl.scan_parquet(f"s3://{bucket}/by-pyarrow/*.parquet", storage_options=options)
    check(f"polars, {temperature}, sum", tables.select(pl.len(), pl.sum("id")).collect().row(0),
          (600_000, sum(range(600_000))))
    got = tables.filter(pl.col("id") >= 450_000).select("id", "pad").sort("id").collect()
    check(f"polars, {temperature}, filter", got.equals(pl.from_arrow(whole.select(["id", "pad"]).slice(450_000))), True)
    check(f"polars, {temperature}, everything", tables.sort("id").collect().equals(pl.from_arrow(whole)), True)


for temperature in ("cold", "warm"):
    with reading("polars", temperature):
        polars(temperature)
pl.from_arrow(whole).write_parquet(f"s3://{bucket}/by-polars/a.parquet", storage_options=options)
written("polars", "by-polars")

con = duckdb.connect()
con.execute("SET enable_external_file_cache = false")  # it would not ask the node twice
# The wheel holds the extension; INSTALL would fetch it.
extension = pathlib.Path(duckdb_extension_httpfs.__file__).parent / f"extensions/v{duckdb.__version__}"
con.load_extension(str(extension / "httpfs.duckdb_extension"))
con.execute(
    f"""CREATE SECRET (TYPE s3, KEY_ID '{side["access_key"]}', SECRET '{side["secret_key"]}',
    REGION '{setup["region"]}', ENDPOINT '{side["endpoint"].removeprefix("http://")}', URL_STYLE 'path', USE_SSL false)"""
)


def duck(temperature):
    tables = f"read_parquet('s3://{bucket}/by-polars/*.parquet')"
    got = con.sql(f"SELECT count(*), sum(id) FROM {tables}").fetchone()
    check(f"duckdb, {temperature}, sum", got, (600_000, sum(range(600_000))))
    got = con.sql(f"SELECT name, value, pad FROM {tables} WHERE id = 333333").fetchone()
    row = whole.slice(333_333, 1).to_pylist()[0]
    check(f"duckdb, {temperature}, one row", got, (row["name"], row["value"], row["pad"]))
    with tempfile.TemporaryDirectory() as d:
        con.sql(f"COPY (SELECT * FROM {tables} ORDER BY id) TO '{d}/all.parquet'")
        check("duckdb, everything", pq.read_table(f"{d}/all.parquet").cast(whole.schema).equals(whole), True)


for temperature in ("cold", "warm"):
    with reading("duckdb", temperature):
        duck(temperature)
con.register("whole", whole)
con.sql(f"COPY whole TO 's3://{bucket}/by-duckdb/a.parquet'")
written("duckdb", "by-duckdb")

sys.exit(1 if failures else 0)
