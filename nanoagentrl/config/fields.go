package config

// Config holds every setting of a run. It is flat: one field is one key of the YAML file and one --set option. A
// field's doc comment is also the comment that Save writes above the key, with the field's name replaced by the key.
//
// Tags beside yaml: min and max are inclusive bounds, above is an exclusive lower bound, oneof lists the allowed words,
// and free:"true" marks a key that does not change what the run computes (beyond rounding), so that it may differ when
// a run is resumed.
type Config struct {
	// --- run ---

	// RunDir is the folder that receives checkpoints, metrics and the resolved config; running again with the same
	// folder resumes.
	RunDir string `yaml:"run_dir" free:"true"`
	// Seed fixes the order of the questions, the sampling and the weights of a random model.
	Seed uint64 `yaml:"seed"`
	// Backend is where the maths runs: auto takes the fastest that is installed, cuda is an NVIDIA GPU through XLA,
	// xla is XLA's CPU plugin, go is pure Go.
	Backend string `yaml:"backend" oneof:"auto xla cuda go" free:"true"`
	// DType is the number format of the matrix products: f32, or bf16 with f32 master weights.
	DType string `yaml:"dtype" oneof:"f32 bf16"`

	// --- model ---

	// Model is the policy to start from: a folder in Hugging Face layout, a GGUF file, a name on the hub
	// ("owner/name"), or "random" for an untrained model in the shape of the random_ keys.
	Model string `yaml:"model"`
	// Offline forbids downloads: models must be in a folder or in the local cache.
	Offline bool `yaml:"offline" free:"true"`
	// Reference is the frozen policy that the KL penalty is measured from: "base" is the weights the run starts from;
	// otherwise a folder, GGUF file or hub name of a model with the same tokenizer.
	Reference string `yaml:"reference"`
	// RandomLayers is the number of blocks of a random model.
	RandomLayers int `yaml:"random_layers" min:"1"`
	// RandomHidden is the width of a random model; a multiple of 2 x random_heads.
	RandomHidden int `yaml:"random_hidden" min:"2"`
	// RandomHeads is the number of query heads of a random model.
	RandomHeads int `yaml:"random_heads" min:"1"`
	// RandomKVHeads is the number of key and value heads of a random model; it divides random_heads.
	RandomKVHeads int `yaml:"random_kv_heads" min:"1"`
	// RandomIntermediate is the width of the feed-forward layers of a random model.
	RandomIntermediate int `yaml:"random_intermediate" min:"1"`

	// --- data and search engine ---

	// Task is what is learned: search answers questions with a search engine over several turns, gsm8k solves
	// grade-school maths in one turn.
	Task string `yaml:"task" oneof:"search gsm8k"`
	// TrainData is the file of training questions, JSONL or parquet, or a folder with one (train.jsonl, qa.jsonl), or a
	// data set by its name: nq, triviaqa, popqa, hotpotqa, 2wiki, musique, bamboogle, squad, gsm8k, nq_hotpotqa, or a folder
	// of data_dir, with a split (nq:train) or without; "tiny" is a small world made in memory, "facts:train" and
	// "sums:train" are splits (train, val, test) of the worlds of the world_ keys.
	TrainData string `yaml:"train_data"`
	// EvalData lists the files of evaluation questions, or folders with a test.jsonl or test.parquet; each is one
	// split, named after its file or folder, with its folder in front where two have the same name. Data sets and worlds
	// are named as in train_data: [nq, hotpotqa:dev, facts:test].
	EvalData []string `yaml:"eval_data" free:"true"`
	// DataDir is a folder with a folder for each data set that can be named; sets that it does not have come from the hub.
	DataDir string `yaml:"data_dir" free:"true"`
	// MaxTrainQuestions keeps only the first questions of train_data; 0 keeps all.
	MaxTrainQuestions int `yaml:"max_train_questions" min:"0"`
	// MaxEvalQuestions keeps only the first questions of each file of eval_data; 0 keeps all.
	MaxEvalQuestions int `yaml:"max_eval_questions" min:"0" free:"true"`
	// Corpus is the JSONL file of passages ({"id", "contents"}) that are indexed in memory, or a folder with a
	// corpus.jsonl, or the name of a folder of data_dir; "tiny" and "facts" are the worlds made in memory. It is not read
	// when retriever_url is set.
	Corpus string `yaml:"corpus"`
	// Index is the folder of an index of the corpus that stays on the disk, for a corpus too large for memory; it is made
	// if it is not there, and refused if it is that of another corpus. Worlds made in memory do without.
	Index string `yaml:"index" free:"true"`
	// RetrieverKind says how the corpus is searched in process: by words (bm25), by meaning (dense), or both (hybrid, by
	// reciprocal rank fusion). An index for hybrid holds the folders bm25 and dense.
	RetrieverKind string `yaml:"retriever_kind" oneof:"bm25 dense hybrid"`
	// Encoder is the sentence encoder of dense and hybrid search: a folder, or a name on the Hugging Face hub such as
	// sentence-transformers/all-MiniLM-L6-v2 or intfloat/e5-small-v2.
	Encoder string `yaml:"encoder"`
	// RetrieverURL is the address of a search server that speaks the Search-R1 protocol, such as
	// http://127.0.0.1:8000/retrieve; empty searches the corpus in process.
	RetrieverURL string `yaml:"retriever_url"`
	// OpenSearchURL is the address of an OpenSearch node, such as http://127.0.0.1:9200, or several separated by commas: the
	// passages then lie there, in the index opensearch_index. A corpus, if it is named, must be the one that index was made of.
	OpenSearchURL string `yaml:"opensearch_url"`
	// OpenSearchIndex is the name of the index, made by retriever index --kind opensearch.
	OpenSearchIndex string `yaml:"opensearch_index"`
	// RetrieverTimeoutSec bounds one request to the search server, in seconds.
	RetrieverTimeoutSec float64 `yaml:"retriever_timeout_sec" above:"0" free:"true"`
	// RetrieverRetries is how many times a request that failed on the server's side is sent again.
	RetrieverRetries int `yaml:"retriever_retries" min:"0" max:"100" free:"true"`
	// RetrieverMaxFailures is how many times in a row a search of all episodes of a turn may fail whole before the run
	// saves and stops. After each it waits, 1 s the first time and twice as long each next, up to 30 s, and asks again if
	// the server was not reached, was too busy or failed (a status of 429, of 500 or above).
	RetrieverMaxFailures int `yaml:"retriever_max_failures" min:"1" max:"1000" free:"true"`
	// BM25K1 is BM25's saturation of the term frequency.
	BM25K1 float64 `yaml:"bm25_k1" min:"0"`
	// BM25B is BM25's normalisation by passage length, from 0 (none) to 1 (full).
	BM25B float64 `yaml:"bm25_b" min:"0" max:"1"`

	// --- worlds made in memory: facts (people, towns, rivers and trades to search for), sums (word problems) ---

	// WorldSeed fixes what is drawn; which names and sums a split may use is the same for every seed.
	WorldSeed uint64 `yaml:"world_seed"`
	// WorldPeople is the number of people of facts:train, with half as many towns; with 128 or more, all words occur.
	WorldPeople int `yaml:"world_people" min:"2" max:"1900"`
	// WorldEvalPeople is the number of people of facts:val and of facts:test, with half as many towns each.
	WorldEvalPeople int `yaml:"world_eval_people" min:"2" max:"380"`
	// WorldHops says how many facts a question of facts needs: one, two, or mixed (half and half).
	WorldHops string `yaml:"world_hops" oneof:"one two mixed"`
	// WorldFacts is the number of facts in a passage; a person has four, a town two.
	WorldFacts int `yaml:"world_facts" min:"1" max:"4"`
	// WorldNoise is the share of facts, from 0 to 1, that other passages talk about so much that even a good query, name
	// and relation, misses the one that tells it; at 0 a good query always finds it among the first three.
	WorldNoise float64 `yaml:"world_noise" min:"0" max:"1"`
	// WorldSums is the number of problems of sums:train.
	WorldSums int `yaml:"world_sums" min:"1"`
	// WorldEvalSums is the number of problems of sums:val and of sums:test each.
	WorldEvalSums int `yaml:"world_eval_sums" min:"1"`
	// WorldSteps is the largest number of additions and subtractions of a problem of sums.
	WorldSteps int `yaml:"world_steps" min:"1" max:"8"`
	// WorldLargest is the largest number in sums, results on the way included.
	WorldLargest int `yaml:"world_largest" min:"24" max:"99"`

	// --- prompt ---

	// PromptSource says where prompts come from: config builds them from the two texts below, row takes the prompt of
	// the data row as it stands.
	PromptSource string `yaml:"prompt_source" oneof:"config row"`
	// SystemPrompt is the system message; "default" is the task's own text, empty sends none.
	SystemPrompt string `yaml:"system_prompt"`
	// UserPrompt is the user message, in which {question} is replaced by the question; "default" is the task's own text.
	UserPrompt string `yaml:"user_prompt"`
	// ChatTemplate says whether messages go through the model's chat template: auto does when the model has one, never
	// joins the texts with a blank line.
	ChatTemplate string `yaml:"chat_template" oneof:"auto always never"`

	// --- rollout ---

	// PromptsPerStep is the number of questions of one training step.
	PromptsPerStep int `yaml:"prompts_per_step" min:"1" max:"100000"`
	// GroupSize is the number of episodes sampled for each question; their mean reward is the baseline, so
	// there must be at least 2 (1 with advantage reinforce_pp or gae, which have another).
	GroupSize int `yaml:"group_size"`
	// Temperature divides the logits when training episodes are sampled.
	Temperature float64 `yaml:"temperature" above:"0"`
	// MaxTurns is the number of actions of an episode, searches and the answer together: with 2, a search in the
	// second turn is not run and the episode ends as out_of_turns.
	MaxTurns int `yaml:"max_turns" min:"1"`
	// MaxNewTokens is the number of tokens that the policy may write in a whole episode, over all turns.
	MaxNewTokens int `yaml:"max_new_tokens" min:"1"`
	// MaxTurnTokens is the number of tokens that the policy may write in one turn; 0 bounds a turn by max_new_tokens
	// only. The one turn of task gsm8k is bounded by max_new_tokens.
	MaxTurnTokens int `yaml:"max_turn_tokens" min:"0"`
	// TopK is the number of passages that one search returns.
	TopK int `yaml:"topk" min:"1" max:"1000"`
	// MaxObsTokens is the number of tokens of one search result; passages beyond it are left out whole, but for the
	// first, which is cut after a word if it is too long by itself.
	MaxObsTokens int `yaml:"max_obs_tokens" min:"16"`
	// ShufflePassages shows the passages of a search result in random order instead of by rank.
	ShufflePassages bool `yaml:"shuffle_passages"`
	// MaxContext is the number of tokens of a whole episode, prompt included; 0 is the longest that the model takes.
	MaxContext int `yaml:"max_context" min:"0"`
	// LongPrompt says what happens to a prompt that leaves no room for one full turn in max_context: error ends the
	// run, skip leaves the question out and counts it. A prompt is never cut.
	LongPrompt string `yaml:"long_prompt" oneof:"error skip"`
	// RolloutBatch is the number of episodes decoded at once; 0 decodes a whole step at once. It bounds memory.
	RolloutBatch int `yaml:"rollout_batch" min:"0" free:"true"`

	// --- reward: the weighted sum of the parts below; each part is logged by itself ---

	// RewardEM is the weight of a right answer: exact match after SQuAD normalisation for search, the right number for
	// gsm8k.
	RewardEM float64 `yaml:"reward_em"`
	// RewardF1 is the weight of the word F1 between the answer and the closest golden answer (search only).
	RewardF1 float64 `yaml:"reward_f1"`
	// RewardLenient is the weight of a golden answer that stands anywhere within the answer (search only).
	RewardLenient float64 `yaml:"reward_lenient"`
	// RewardFormat is the weight of an episode whose every turn keeps to the tag protocol.
	RewardFormat float64 `yaml:"reward_format"`
	// RewardValidTurns is the weight of the share of turns that end in a search or an answer (search only); it gives
	// a weak policy something to learn from.
	RewardValidTurns float64 `yaml:"reward_valid_turns"`
	// FormatAnnealSteps is the number of steps over which reward_format and reward_valid_turns fall linearly to 0 in
	// training (evaluations keep them); 0 keeps them as they are.
	FormatAnnealSteps int `yaml:"format_anneal_steps" min:"0"`
	// OverlongPenalty is taken off the reward of an episode that uses up max_new_tokens, and a linearly rising share of
	// it within the last overlong_buffer tokens before; 0 takes off nothing.
	OverlongPenalty float64 `yaml:"overlong_penalty" min:"0" max:"1000"`
	// OverlongBuffer is the number of those last tokens; 0 is a fifth of max_new_tokens.
	OverlongBuffer int `yaml:"overlong_buffer" min:"0"`

	// --- algorithm ---

	// Algorithm names a published method. It sets keys of this section and of the reward's to that method's values
	// where neither the file nor an override sets them (docs/training.md has the table); nothing else depends on it.
	Algorithm string `yaml:"algorithm" oneof:"grpo dr_grpo rloo reinforce_pp reinforce_pp_baseline ppo dapo gspo"`
	// Advantage says what an episode is compared with: group with the mean of its group, rloo with the others of its
	// group, reinforce_pp with the batch, reinforce_pp_baseline with its group, then scaled over the batch, gae with
	// what a critic predicts at each token.
	Advantage string `yaml:"advantage" oneof:"group rloo reinforce_pp reinforce_pp_baseline gae"`
	// Gamma discounts rewards per policy token (advantage reinforce_pp and gae).
	Gamma float64 `yaml:"gamma" min:"0" max:"1"`
	// GAELambda discounts, per policy token, the critic's later errors (advantage gae); 1 does without its opinion of
	// later tokens.
	GAELambda float64 `yaml:"gae_lambda" min:"0" max:"1"`
	// AdvStdNorm divides the advantages of a group by the sample standard deviation of its rewards; false only
	// subtracts the mean, as Dr. GRPO does. With advantage reinforce_pp and reinforce_pp_baseline the standard deviation
	// is that of all policy tokens of the step; with gae so is the mean, and false leaves advantages as they are. rloo
	// does not use it.
	AdvStdNorm bool `yaml:"adv_std_norm"`
	// AdvEps is added to that standard deviation.
	AdvEps float64 `yaml:"adv_eps" above:"0"`
	// Ratio says what is compared with the policy that sampled: token the probability of each token, sequence that of
	// the whole episode, as the geometric mean over its tokens (one more forward pass for each update).
	Ratio string `yaml:"ratio" oneof:"token sequence"`
	// ClipLow bounds the probability ratio from below at 1 - clip_low.
	ClipLow float64 `yaml:"clip_low" above:"0" max:"1"`
	// ClipHigh bounds the probability ratio from above at 1 + clip_high.
	ClipHigh float64 `yaml:"clip_high" above:"0"`
	// KLCoef is the weight of the KL penalty towards the reference, per nat and token; 0 needs no reference model in
	// memory.
	KLCoef float64 `yaml:"kl_coef" min:"0"`
	// KLEstimator is how that penalty is estimated at a token, with d = log reference - log policy: k1 is -d, k2 d²/2,
	// k3 exp(d) - d - 1.
	KLEstimator string `yaml:"kl_estimator" oneof:"k1 k2 k3"`
	// KLIn says where the penalty is: loss adds it to the loss, reward takes it off the reward of each token before
	// advantages are made.
	KLIn string `yaml:"kl_in" oneof:"loss reward"`
	// LossAgg is how the losses of the policy's tokens are averaged: token_mean over all tokens of the update, seq_mean
	// over each episode and then over episodes, dr_grpo over episodes with the constant divisor max_new_tokens.
	LossAgg string `yaml:"loss_agg" oneof:"token_mean seq_mean dr_grpo"`
	// LossMask keeps what the environment wrote, retrieved passages above all, out of the loss, as it must be. false
	// trains the policy to write passages itself; it is there to show what that does to a run.
	LossMask bool `yaml:"loss_mask"`
	// InnerEpochs is how many times the episodes of a step are used.
	InnerEpochs int `yaml:"inner_epochs" min:"1"`
	// Minibatches is the number of weight updates in one inner epoch; it divides prompts_per_step.
	Minibatches int `yaml:"minibatches" min:"1"`
	// DropZeroSignal leaves groups whose rewards are all equal out of the loss and its divisors; false keeps them for
	// their KL penalty.
	DropZeroSignal bool `yaml:"drop_zero_signal"`
	// DynamicSampling is the number of further rounds of questions that a step may draw to replace groups whose rewards
	// are all equal; 0 takes what comes.
	DynamicSampling int `yaml:"dynamic_sampling" min:"0" max:"100"`
	// CriticLR is the peak learning rate of the critic (advantage gae), on the same schedule as lr.
	CriticLR float64 `yaml:"critic_lr" min:"0"`
	// ValueClip bounds how far, in units of reward, the loss lets the critic's prediction move from what it was before
	// the step (advantage gae); 0 does not bound it.
	ValueClip float64 `yaml:"value_clip" min:"0"`

	// --- optimiser: AdamW ---

	// Steps is the number of training steps of the run. With a constant learning rate it may be raised later to go on.
	Steps int `yaml:"steps" min:"0"`
	// LR is the peak learning rate.
	LR float64 `yaml:"lr" min:"0"`
	// LRSchedule is the course of the learning rate after the warm-up: constant, or linear or cosine down to 0 at
	// the last step.
	LRSchedule string `yaml:"lr_schedule" oneof:"constant linear cosine"`
	// WarmupSteps is the number of steps over which the learning rate rises linearly to its peak.
	WarmupSteps int `yaml:"warmup_steps" min:"0"`
	// WeightDecay is AdamW's decoupled decay of the weight matrices, per step in units of the learning rate.
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
	// AdamBeta1 is the decay of the mean of the gradients.
	AdamBeta1 float64 `yaml:"adam_beta1" min:"0" max:"0.99999"`
	// AdamBeta2 is the decay of the mean of the squared gradients.
	AdamBeta2 float64 `yaml:"adam_beta2" min:"0" max:"0.9999999"`
	// AdamEps is added to the root of the mean squared gradient.
	AdamEps float64 `yaml:"adam_eps" above:"0"`
	// MaxGradNorm is the global L2 norm that gradients are scaled down to; 0 leaves them as they are.
	MaxGradNorm float64 `yaml:"max_grad_norm" min:"0"`
	// MicroBatchTokens is the number of tokens, padding included, that go through the model at once when it is
	// trained or scored. It bounds memory and does not change the gradient; a longer episode goes alone.
	MicroBatchTokens int `yaml:"micro_batch_tokens" min:"1" free:"true"`
	// ActivationGB is the room, in 10^9 bytes, for what the blocks keep between the forward and the backward pass of a
	// micro-batch. Blocks beyond it compute their forward pass twice, which changes no result.
	ActivationGB float64 `yaml:"activation_gb" min:"0" free:"true"`

	// --- evaluation, logging, checkpoints ---

	// EvalEvery is the number of steps between evaluations; the last step is always evaluated. 0 turns both off.
	EvalEvery int `yaml:"eval_every" min:"0" free:"true"`
	// EvalAtStart evaluates once before the first step.
	EvalAtStart bool `yaml:"eval_at_start" free:"true"`
	// EvalTemperature is the sampling temperature of evaluations; 0 takes the most likely token.
	EvalTemperature float64 `yaml:"eval_temperature" min:"0" free:"true"`
	// EvalSamples is the number of episodes per evaluation question.
	EvalSamples int `yaml:"eval_samples" min:"1" free:"true"`
	// SampleEvery is the number of steps between sample episodes written to the run folder; 0 writes none.
	SampleEvery int `yaml:"sample_every" min:"0" free:"true"`
	// SaveEvery is the number of steps between checkpoints; the last step is always saved. 0 saves only the last.
	SaveEvery int `yaml:"save_every" min:"0" free:"true"`
	// KeepLast is the number of newest checkpoints that are kept.
	KeepLast int `yaml:"keep_last" min:"1" free:"true"`
	// KeepEvery also keeps each checkpoint whose step is a multiple of it; 0 keeps none.
	KeepEvery int `yaml:"keep_every" min:"0" free:"true"`
	// BestMetric names the evaluation metric, larger is better, whose best checkpoint is kept; eval/em is the mean of
	// eval/em_<split> over eval_data. In a run without evaluations (eval_every: 0) it is the training reward of the last
	// steps before a checkpoint. Empty keeps none.
	BestMetric string `yaml:"best_metric" free:"true"`
	// Showcase plays the first evaluation question before and after the training and prints both episodes, and measures
	// the policy before and after: sampled, greedily, with the passages shuffled, and without a search engine.
	Showcase bool `yaml:"showcase" free:"true"`
	// Figure is the PNG or SVG file that receives the learning curves at the end, as run_dir/curves.png does; empty for
	// that file alone, none for no picture at all.
	Figure string `yaml:"figure" free:"true"`
	// StopOnCollapse ends the run, with a checkpoint and an exit code of its own, when the training reward has
	// collapsed; false only warns.
	StopOnCollapse bool `yaml:"stop_on_collapse" free:"true"`
}

// Default returns the settings that hold where a file says nothing. It names no model and no data, so a file must.
func Default() *Config {
	return &Config{
		RunDir: "runs/default", Backend: "auto", DType: "f32",

		Reference:    "base",
		RandomLayers: 2, RandomHidden: 64, RandomHeads: 4, RandomKVHeads: 2, RandomIntermediate: 128,

		Task: "search", EvalData: []string{},
		RetrieverKind: "bm25", RetrieverTimeoutSec: 30, RetrieverRetries: 2, RetrieverMaxFailures: 5, BM25K1: 0.9, BM25B: 0.4,
		WorldSeed: 1, WorldPeople: 300, WorldEvalPeople: 100, WorldHops: "one", WorldFacts: 2, WorldNoise: 0.1,
		WorldSums: 2000, WorldEvalSums: 300, WorldSteps: 3, WorldLargest: 40,

		PromptSource: "config", SystemPrompt: DefaultPrompt, UserPrompt: DefaultPrompt, ChatTemplate: "auto",

		PromptsPerStep: 16, GroupSize: 8, Temperature: 1,
		MaxTurns: 4, MaxNewTokens: 512, TopK: 3, MaxObsTokens: 512, MaxContext: 2048,
		LongPrompt: "error",

		RewardEM: 1,

		Algorithm: "grpo", Advantage: "group", Gamma: 1, GAELambda: 1, AdvStdNorm: true, AdvEps: 1e-6,
		Ratio: "token", ClipLow: 0.2, ClipHigh: 0.2, KLCoef: 0.001, KLEstimator: "k3", KLIn: "loss",
		LossAgg: "token_mean", LossMask: true, InnerEpochs: 1, Minibatches: 1, CriticLR: 1e-5, ValueClip: 0.2,

		Steps: 200, LR: 1e-6, LRSchedule: "constant",
		AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEps: 1e-8, MaxGradNorm: 1, MicroBatchTokens: 4096, ActivationGB: 1.5,

		EvalEvery: 20, EvalAtStart: true, EvalSamples: 1, SampleEvery: 10, SaveEvery: 20, KeepLast: 2,
		BestMetric: "eval/em",
	}
}

// DefaultPrompt is the value of system_prompt and user_prompt that stands for the task's own text.
const DefaultPrompt = "default"
