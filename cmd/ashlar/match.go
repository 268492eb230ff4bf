package main

// matchPattern says whether name matches pattern, in which * stands for any number of characters and ? for one. It
// takes time in proportion to len(pattern)*len(name) at worst, and allocates nothing.
func matchPattern(pattern, name string) bool {
	p, n := 0, 0
	star, back := -1, 0 // the last *, and where in name its match ends so far
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, back = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			back++
			p, n = star+1, back
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// validPattern says whether a pattern can match a bucket name at all, by its characters. S3's old rules allowed upper
// case and underscores, and other servers still do.
func validPattern(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.', c == '-', c == '_', c == '*', c == '?':
		default:
			return false
		}
	}
	return s != ""
}

// distance returns the edit distance between two words: insertions, deletions, substitutions and swaps of neighbours
// cost one each (optimal string alignment).
func distance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
