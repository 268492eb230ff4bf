// The AWS SDK for JavaScript in the matrix of clients, told what to do line by line as worker_test.go says.
"use strict";

const fs = require("node:fs");
const readline = require("node:readline");
const { PassThrough } = require("node:stream");
const { pipeline } = require("node:stream/promises");
const s3 = require("@aws-sdk/client-s3");
const { Upload } = require("@aws-sdk/lib-storage");

const [endpoint, bucket] = process.argv.slice(2);
const client = new s3.S3Client({ endpoint, forcePathStyle: true });

async function get(Key, file, Range) {
  const answer = await client.send(new s3.GetObjectCommand({ Bucket: bucket, Key, Range }));
  await pipeline(answer.Body, fs.createWriteStream(file));
}

const operations = {
  // Small ones by PutObject with a file as the body; large ones in parts, from a stream whose length nobody knows.
  async put(Key, file) {
    const Body = fs.createReadStream(file);
    if (fs.statSync(file).size < 5 << 20) {
      await client.send(new s3.PutObjectCommand({ Bucket: bucket, Key, Body }));
      return;
    }
    await new Upload({ client, params: { Bucket: bucket, Key, Body: Body.pipe(new PassThrough()) } }).done();
  },
  async list(Prefix) {
    const keys = [];
    for await (const page of s3.paginateListObjectsV2({ client }, { Bucket: bucket, Prefix })) {
      keys.push(...(page.Contents ?? []).map((object) => object.Key));
    }
    return keys;
  },
  get: (key, file) => get(key, file),
  range: (key, first, last, file) => get(key, file, `bytes=${first}-${last}`),
  async copy(from, Key) {
    const CopySource = `${bucket}/${encodeURIComponent(from)}`;
    await client.send(new s3.CopyObjectCommand({ Bucket: bucket, Key, CopySource }));
  },
  async removeAll(prefix) {
    const Objects = (await operations.list(prefix)).map((Key) => ({ Key }));
    const { Errors } = await client.send(new s3.DeleteObjectsCommand({ Bucket: bucket, Delete: { Objects } }));
    if (Errors?.length) {
      throw new Error(JSON.stringify(Errors));
    }
  },
  async remove(Key) {
    await client.send(new s3.DeleteObjectCommand({ Bucket: bucket, Key }));
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [op, ...args] = line.split("\t");
    let answer;
    try {
      answer = ["ok", ...((await operations[op](...args)) ?? [])];
    } catch (e) {
      answer = e.$metadata?.httpStatusCode === 404 ? ["missing"] : ["error", String(e.stack).replace(/\s+/g, " ")];
    }
    console.log(answer.join("\t"));
  }
}

main();
