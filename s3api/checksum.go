package s3api

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// checksum is one of S3's algorithms for the contents of objects (S3 user guide, "Checking object integrity").
type checksum struct {
	name   string           // as in messages and x-amz-checksum-algorithm
	header string           // canonical; in lower case the name of its trailer
	size   int              // of the raw sum, in bytes
	new    func() hash.Hash // nil: not computed here, the origin holds the body against it
}

// nvmePolynomial is CRC-64/NVME (NVM Express NVM command set, 5.2.1.3.4), bits reversed as hash/crc64 wants them.
const nvmePolynomial = 0x9a6c9329ac4bc9b5

func newChecksums() []checksum {
	castagnoli, nvme := crc32.MakeTable(crc32.Castagnoli), crc64.MakeTable(nvmePolynomial)
	return []checksum{
		{"CRC32", "X-Amz-Checksum-Crc32", 4, func() hash.Hash { return crc32.NewIEEE() }},
		{"CRC32C", "X-Amz-Checksum-Crc32c", 4, func() hash.Hash { return crc32.New(castagnoli) }},
		{"CRC64NVME", "X-Amz-Checksum-Crc64nvme", 8, func() hash.Hash { return crc64.New(nvme) }},
		{"SHA1", "X-Amz-Checksum-Sha1", 20, sha1.New},
		{"SHA256", "X-Amz-Checksum-Sha256", 32, sha256.New},
		{"SHA512", "X-Amz-Checksum-Sha512", 64, sha512.New},
		{"MD5", "X-Amz-Checksum-Md5", 16, md5.New},
		{"XXHASH64", "X-Amz-Checksum-Xxhash64", 8, func() hash.Hash { return xxhash.New() }},
		{"XXHASH3", "X-Amz-Checksum-Xxhash3", 8, nil},
		{"XXHASH128", "X-Amz-Checksum-Xxhash128", 16, nil},
	}
}

// trailer is the name in x-amz-trailer.
func (c *checksum) trailer() string { return strings.ToLower(c.header) }

// valid says whether a value is base64 of a sum of the right length.
func (c *checksum) valid(value string) bool {
	raw, err := base64.StdEncoding.Strict().DecodeString(value)
	return err == nil && len(raw) == c.size
}

// encodedLen is the length of a value.
func (c *checksum) encodedLen() int { return base64.StdEncoding.EncodedLen(c.size) }
