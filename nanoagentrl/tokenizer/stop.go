package tokenizer

import "bytes"

// StopMatcher watches the bytes of one sampled text for stop strings. A stop string may begin in one token and end in
// a later one, and the last token may hold more than the stop string: the caller keeps that token whole, while Text is
// cut right after the stop string.
//
// The stop string that fires is the one that ends first; of several that end at the same place, the longest. Feed
// looks only at the new bytes and at as many before them as a stop string can reach back, so a text of any length
// costs the same per token.
type StopMatcher struct {
	stops   [][]byte
	longest int
	text    []byte
	stop    string
	fired   bool
}

// NewStopMatcher returns a matcher for the given stop strings. Empty ones never fire.
func NewStopMatcher(stops []string) *StopMatcher {
	m := &StopMatcher{}
	for _, s := range stops {
		if s != "" {
			m.stops = append(m.stops, []byte(s))
			m.longest = max(m.longest, len(s))
		}
	}
	return m
}

// Feed takes the bytes of the next token and reports whether a stop string is complete. After that it takes no more.
func (m *StopMatcher) Feed(b []byte) bool {
	if m.fired {
		return true
	}
	begin := max(0, len(m.text)-(m.longest-1))
	if m.longest == 0 {
		begin = len(m.text)
	}
	m.text = append(m.text, b...)
	// A match that ended before the new bytes would have fired then, so any match in the window is new.
	window := m.text[begin:]
	end, length := len(window)+1, 0
	for _, stop := range m.stops {
		at := bytes.Index(window, stop)
		if at < 0 {
			continue
		}
		if stopEnd := at + len(stop); stopEnd < end || stopEnd == end && len(stop) > length {
			end, length = stopEnd, len(stop)
		}
	}
	if length == 0 {
		return false
	}
	m.text = m.text[:begin+end]
	m.stop, m.fired = string(window[end-length:end]), true
	return true
}

// Stop returns the stop string that fired, "" while none has.
func (m *StopMatcher) Stop() string { return m.stop }

// Text returns the text so far, cut right after the stop string once one has fired; bytes that are not UTF-8 are
// U+FFFD.
func (m *StopMatcher) Text() string { return lossyText(m.text) }

// Reset makes the matcher ready for another text with the same stop strings.
func (m *StopMatcher) Reset() { m.text, m.stop, m.fired = m.text[:0], "", false }
