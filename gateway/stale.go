package gateway

// StaleError is what Request.Check said of info that is older than it should be, since the origin is in trouble. It
// unwraps to that.
type StaleError struct{ Err error }

func (e *StaleError) Error() string { return e.Err.Error() }

// Unwrap returns the error of Check.
func (e *StaleError) Unwrap() error { return e.Err }

// makesDo takes up info that is too old, because asking for newer ended in err, and says whether it could: where there is
// trouble, as opposed to an answer, and Policy.StaleIfError lets it. What is remembered is looked at once more: a write, or
// what another reader was told, may have taken it away meanwhile. Never info of a process that ended uncleanly; what was
// only written and never read was never confirmed, which is too old.
func (o *Object) makesDo(err error) bool {
	if !trouble(err) || o.ctx.Err() != nil {
		return false
	}
	k := o.g.infos.get(o.request.Object)
	if !o.wouldDo(k) {
		return false
	}
	o.known, o.led, o.stale = k, nil, !o.fresh(k) // another reader may have had more luck
	if o.stale {
		o.g.metrics.stale.Inc()
	}
	return true
}

// wouldDo says whether info may be used that is too old, if it comes to that. k may be nil.
func (o *Object) wouldDo(k *known) bool {
	if k == nil || k.stale || k.refused || k.version == nil || k.version.BlockSize != o.policy.BlockSize || o.request.NoCache ||
		o.request.Object.Raw != "" {
		return false
	}
	age := k.age()
	return age >= 0 && age <= o.policy.TTL+o.policy.StaleIfError
}
