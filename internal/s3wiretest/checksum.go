package s3wiretest

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"hash/crc32"
	"hash/crc64"
)

// checksums are all that S3 has.
func checksums() []checksum {
	sum := func(h func() hash.Hash) func([]byte) string {
		return func(b []byte) string {
			s := h()
			s.Write(b)
			return base64.StdEncoding.EncodeToString(s.Sum(nil))
		}
	}
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	nvme := crc64.MakeTable(0x9a6c9329ac4bc9b5) // CRC-64/NVME, bits reversed
	return []checksum{
		{"crc32", "x-amz-checksum-crc32", sum(func() hash.Hash { return crc32.NewIEEE() })},
		{"crc32c", "x-amz-checksum-crc32c", sum(func() hash.Hash { return crc32.New(castagnoli) })},
		{"crc64nvme", "x-amz-checksum-crc64nvme", sum(func() hash.Hash { return crc64.New(nvme) })},
		{"sha1", "x-amz-checksum-sha1", sum(sha1.New)},
		{"sha256", "x-amz-checksum-sha256", sum(sha256.New)},
	}
}
