// Package s3api speaks the S3 wire, and nothing else. Who may do what is decided on every request before anything about
// the object is revealed: a refusal is the same for what exists, what does not, and what is cached. Object reads are
// answered from a read engine (package gateway) with the bytes of one version or with an error, and never with a short
// body that looks complete; every other request goes to the origin through a Forwarder, and after every write that may
// have taken effect the engine forgets what it knew before the client gets its answer.
//
// The path of one request is Handler.serve in handler.go, from top to bottom.
package s3api
