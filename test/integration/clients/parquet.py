"""Parquet through the node: written at the origin, read by PyArrow and by DuckDB with projection and filters."""

import json
import pathlib
import sys
import tempfile

import duckdb
import duckdb_extension_httpfs
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

for temperature in ("cold", "warm"):
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

con = duckdb.connect()
# The wheel holds the extension; INSTALL would fetch it.
extension = pathlib.Path(duckdb_extension_httpfs.__file__).parent / f"extensions/v{duckdb.__version__}"
con.load_extension(str(extension / "httpfs.duckdb_extension"))
side = setup["node"]
con.execute(
    f"""CREATE SECRET (TYPE s3, KEY_ID '{side["access_key"]}', SECRET '{side["secret_key"]}',
    REGION '{setup["region"]}', ENDPOINT '{side["endpoint"].removeprefix("http://")}', URL_STYLE 'path', USE_SSL false)"""
)
tables = f"read_parquet('s3://{bucket}/table/*.parquet')"
for temperature in ("first", "second"):
    got = con.sql(f"SELECT count(*), sum(id) FROM {tables}").fetchone()
    check(f"duckdb, {temperature}, sum", got, (600_000, sum(range(600_000))))
    got = con.sql(f"SELECT name, value, pad FROM {tables} WHERE id = 333333").fetchone()
    row = whole.slice(333_333, 1).to_pylist()[0]
    check(f"duckdb, {temperature}, one row", got, (row["name"], row["value"], row["pad"]))
with tempfile.TemporaryDirectory() as d:
    con.sql(f"COPY (SELECT * FROM {tables} ORDER BY id) TO '{d}/all.parquet'")
    check("duckdb, everything", pq.read_table(f"{d}/all.parquet").cast(whole.schema).equals(whole), True)

sys.exit(1 if failures else 0)
