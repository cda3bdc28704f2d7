// Package scalemcp is ScaleMCP-mini, a check of the interleaved state machine and of the loss mask. Scripted policies
// play small tasks through the turn loop, the Episodes, the reward and the loss that training uses, and five figures
// are counted from what those left behind:
//
//	joint_success            share of episodes with the right answer and the required plan of tools
//	average_cost             mean over episodes of searches + 0.25·depth
//	search_queries           searches of all episodes
//	masked_retrieved_tokens  tokens of retrieved words that have mask 0
//	outcome_policy_updates   episodes whose outcome gave every policy token, and no other, a gradient
//
// # By hand
//
// Episode i has depth d = 2 + i mod 3, searches max(1, d-1) times and retrieves a context of 9 + 2d words:
//
//	depth  searches  cost          words
//	2      1         1 + 0.50      13
//	3      2         2 + 0.75      15
//	4      3         3 + 1.00      17
//	mean   2         2.75          15
//
// Over 120 episodes, 40 of each depth, that is a cost of 2.75, 240 searches and 1800 retrieved words. The 1800 fix how
// the context is shown: once in an episode. Shown again by every search it would be 40·(13 + 30 + 51) = 3760. So the
// context's five passages are dealt out over the episode's searches, each passage shown once, and only the words of the
// context are counted. The tags and the header "Doc 1(Title: …)" around a passage are the environment's and have mask 0
// too, but nothing was retrieved in them.
//
// A success here says that the machinery works. It is not comparable with the exact match of a paper: the tasks are
// made up, and their policies are scripts that cannot fail.
package scalemcp
