// Package integration holds tests of the built binary as a process, in front of a real S3 server (versitygw) and of the
// project's own, read by the clients that people use: aws-cli, boto3, aws-sdk-go-v2, PyArrow, DuckDB. Run them by
// `make integration`, which installs what they need; they are behind the build tag integration.
package integration
