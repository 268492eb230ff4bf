// Package consistency writes and reads a few objects from many clients at once, remembers what each of them saw, and
// checks that it is what one S3 endpoint may answer: every read is of one whole version, at least as new as the last
// write acknowledged before it began, and never of one that was overwritten, deleted or refused.
//
// Check (check.go) judges a history and knows nothing of S3. Load (load.go) makes one against any endpoint. The tests,
// behind the build tag integration, run it through a node, and against nodes into which faults have been built that it
// must find. `make integration` runs them for seconds, `make consistency` for a minute.
package consistency
