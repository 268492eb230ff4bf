// Package integration holds tests of the built binary as a process, in front of a real S3 server (versitygw) and of the
// project's own, used by the clients that people use: those of docs/clients.md. TestClients takes each through the same
// steps; programs in other languages are in the folder clients. Run all by `make integration`, which installs what they
// need; they are behind the build tag integration.
package integration
