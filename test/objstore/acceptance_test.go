// Package objstore runs the acceptance test of thanos-io/objstore against one endpoint, which TEST_ENDPOINT (host:port),
// TEST_ACCESS_KEY and TEST_SECRET_KEY name. make conformance runs it against an S3 server and through a node.
package objstore

import (
	"os"
	"testing"

	"github.com/thanos-io/objstore"
	"github.com/thanos-io/objstore/providers/s3"
)

func TestAcceptance(t *testing.T) {
	config := s3.DefaultConfig
	config.Bucket = "objstore-acceptance"
	config.Endpoint, config.Insecure, config.Region = os.Getenv("TEST_ENDPOINT"), true, "us-east-1"
	config.AccessKey, config.SecretKey = os.Getenv("TEST_ACCESS_KEY"), os.Getenv("TEST_SECRET_KEY")
	if config.Endpoint == "" {
		t.Fatal("TEST_ENDPOINT is not set: run this by make conformance")
	}
	bucket, remove, err := s3.NewTestBucketFromConfig(t, config.Region, config, false)
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	objstore.AcceptanceTest(t, bucket)
	objstore.AcceptanceTest(t, objstore.NewPrefixedBucket(bucket, "prefix"))
}
