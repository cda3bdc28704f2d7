package agent

import "github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"

// Stats summarises episodes under the names of the field's dashboards, each with prefix in front ("train/"):
//
//	response_len         mean policy tokens of an episode
//	response_len_max     the most
//	obs_len              mean environment tokens of an episode
//	num_turns            mean turns of an episode
//	num_searches         mean searches that the policy asked for in an episode
//	invalid_format_rate  share of episodes with at least one invalid action
//	answer_rate          share that ended with an answer (search), or with the end token (gsm8k)
//	clipped_ratio        share cut off by the token budget
//	context_full_rate    share cut off by the context
//	out_of_turns_rate    share that ended without an answer in the last turn
//	retriever_error_rate share lost to a failing search engine; retriever_errors is their number
//
// No episodes give an empty map.
func Stats(prefix string, episodes []*episode.Episode) map[string]float64 {
	if len(episodes) == 0 {
		return map[string]float64{}
	}
	sums := map[string]float64{}
	longest := 0
	stops := map[episode.StopReason]float64{}
	for _, e := range episodes {
		policy := e.CountTokens(episode.Policy)
		longest = max(longest, policy)
		sums["response_len"] += float64(policy)
		sums["obs_len"] += float64(e.CountTokens(episode.Environment))
		sums["num_turns"] += float64(len(e.Turns))
		sums["num_searches"] += float64(e.CountActions(episode.ActionSearch))
		sums["invalid_format_rate"] += float64(min(e.CountActions(episode.ActionInvalid), 1))
		stops[e.Stop]++
	}
	sums["answer_rate"] = stops[episode.StopAnswer] + stops[episode.StopEOS]
	sums["clipped_ratio"] = stops[episode.StopLength]
	sums["context_full_rate"] = stops[episode.StopContext]
	sums["out_of_turns_rate"] = stops[episode.StopTurns]
	sums["retriever_error_rate"] = stops[episode.StopRetriever]

	stats := map[string]float64{
		prefix + "response_len_max": float64(longest),
		prefix + "retriever_errors": stops[episode.StopRetriever],
	}
	for name, sum := range sums {
		stats[prefix+name] = sum / float64(len(episodes))
	}
	return stats
}
