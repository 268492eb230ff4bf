package devs3

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"strings"
)

// checksum kinds of x-amz-checksum-type.
const (
	fullObject = "FULL_OBJECT"
	composite  = "COMPOSITE"
)

// algorithm is one of S3's checksums of objects (S3 user guide, "Checking object integrity").
type algorithm struct {
	name string // as in x-amz-checksum-algorithm; in lower case the end of its header
	size int    // of the raw sum, in bytes
	new  func() hash.Hash
}

func (a algorithm) header() string {
	return "X-Amz-Checksum-" + a.name[:1] + strings.ToLower(a.name[1:])
}

// algorithms lists them all, in the order in which answers show them.
func algorithms() []algorithm {
	return []algorithm{
		{"CRC32", 4, func() hash.Hash { return crc32.NewIEEE() }},
		{"CRC32C", 4, func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }},
		{"CRC64NVME", 8, func() hash.Hash { return crc64.New(crc64.MakeTable(nvmePolynomial)) }},
		{"SHA1", 20, sha1.New},
		{"SHA256", 32, sha256.New},
	}
}

// nvmePolynomial is CRC-64/NVME (NVM Express NVM command set, 5.2.1.3.4), bits reversed as hash/crc64 wants them.
const nvmePolynomial = 0x9a6c9329ac4bc9b5

// defaultChecksum is what S3 computes for an upload that brings none.
const defaultChecksum = "CRC64NVME"

func findAlgorithm(name string) (algorithm, bool) {
	for _, a := range algorithms() {
		if strings.EqualFold(a.name, name) {
			return a, true
		}
	}
	return algorithm{}, false
}

// algorithmOfHeader finds the algorithm of a header or trailer name, in any case.
func algorithmOfHeader(name string) (algorithm, bool) {
	const prefix = "x-amz-checksum-"
	if len(name) < len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
		return algorithm{}, false
	}
	return findAlgorithm(name[len(prefix):])
}

// validSum says whether a value is base64 of a sum of the right length.
func (a algorithm) validSum(value string) bool {
	raw, err := base64.StdEncoding.Strict().DecodeString(value)
	return err == nil && len(raw) == a.size
}

func base64Sum(h hash.Hash) string { return base64.StdEncoding.EncodeToString(h.Sum(nil)) }
