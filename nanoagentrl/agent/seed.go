package agent

import "hash/fnv"

// SeedFunc returns the seed of an episode from the index of its question in the slice given to Rollout and the number
// of the episode within its group.
type SeedFunc func(question, sample int) uint64

// Seeds returns the seeds of one rollout. They depend only on the run's seed, a tag ("train", "eval/nq"), the step,
// the question and the sample, so that a resumed run draws the same samples, and an evaluation draws the same ones
// whenever it runs:
//
//	s = mix(run); s = mix(s ^ fnv1a(tag)); s = mix(s ^ step); s = mix(s ^ question); s = mix(s ^ sample)
//
// where mix is one step of splitmix64 (Steele, Lea, Flood 2014) and fnv1a its 64-bit hash.
func Seeds(run uint64, tag string, step int) SeedFunc {
	h := fnv.New64a()
	h.Write([]byte(tag))
	base := mix(mix(mix(run)^h.Sum64()) ^ uint64(step))
	return func(question, sample int) uint64 {
		return mix(mix(base^uint64(question)) ^ uint64(sample))
	}
}

func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
