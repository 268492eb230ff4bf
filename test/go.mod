// Tests and benchmarks that need more than the main module may import: real clients, a real S3 server, other caches.
module github.com/ashlar-s3/ashlar/test

go 1.26.0

replace github.com/ashlar-s3/ashlar => ../

require (
	github.com/aws/aws-sdk-go-v2 v1.48.0
	golang.org/x/sys v0.50.0
)

require github.com/aws/smithy-go v1.28.9 // indirect
