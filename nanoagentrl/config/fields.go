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
	// TrainData is the file of training questions, JSONL or parquet, or a folder with one (train.jsonl, qa.jsonl);
	// "tiny" is a small world made in memory.
	TrainData string `yaml:"train_data"`
	// EvalData lists the files of evaluation questions, or folders with a test.jsonl or test.parquet; each is one
	// split, named after its file or folder, with its folder in front where two have the same name.
	EvalData []string `yaml:"eval_data" free:"true"`
	// MaxTrainQuestions keeps only the first questions of train_data; 0 keeps all.
	MaxTrainQuestions int `yaml:"max_train_questions" min:"0"`
	// MaxEvalQuestions keeps only the first questions of each file of eval_data; 0 keeps all.
	MaxEvalQuestions int `yaml:"max_eval_questions" min:"0" free:"true"`
	// Corpus is the JSONL file of passages ({"id", "contents"}) that BM25 indexes in memory, or a folder with a
	// corpus.jsonl; "tiny" is the world made in memory. It is not read when retriever_url is set.
	Corpus string `yaml:"corpus"`
	// RetrieverURL is the address of a search server that speaks the Search-R1 protocol, such as
	// http://127.0.0.1:8000/retrieve; empty searches the corpus in process.
	RetrieverURL string `yaml:"retriever_url"`
	// RetrieverTimeoutSec bounds one request to the search server, in seconds.
	RetrieverTimeoutSec float64 `yaml:"retriever_timeout_sec" above:"0" free:"true"`
	// RetrieverRetries is how many times a request that failed on the server's side is sent again.
	RetrieverRetries int `yaml:"retriever_retries" min:"0" max:"100" free:"true"`
	// BM25K1 is BM25's saturation of the term frequency.
	BM25K1 float64 `yaml:"bm25_k1" min:"0"`
	// BM25B is BM25's normalisation by passage length, from 0 (none) to 1 (full).
	BM25B float64 `yaml:"bm25_b" min:"0" max:"1"`

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
	PromptsPerStep int `yaml:"prompts_per_step" min:"1"`
	// GroupSize is the number of episodes sampled for each question; their mean reward is the baseline, so
	// there must be at least 2.
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

	// --- algorithm: GRPO ---

	// AdvStdNorm divides the advantages of a group by the sample standard deviation of its rewards; false only
	// subtracts the mean, as Dr. GRPO does.
	AdvStdNorm bool `yaml:"adv_std_norm"`
	// AdvEps is added to that standard deviation.
	AdvEps float64 `yaml:"adv_eps" above:"0"`
	// ClipLow bounds the probability ratio from below at 1 - clip_low.
	ClipLow float64 `yaml:"clip_low" above:"0" max:"1"`
	// ClipHigh bounds the probability ratio from above at 1 + clip_high.
	ClipHigh float64 `yaml:"clip_high" above:"0"`
	// KLCoef is the weight of the KL penalty towards the reference (k3 estimator, nats per token); 0 needs no
	// reference model in memory.
	KLCoef float64 `yaml:"kl_coef" min:"0"`
	// LossAgg is how the losses of the policy's tokens are averaged: token_mean over all tokens of the update, seq_mean
	// over each episode and then over episodes, dr_grpo over episodes with the constant divisor max_new_tokens.
	LossAgg string `yaml:"loss_agg" oneof:"token_mean seq_mean dr_grpo"`
	// InnerEpochs is how many times the episodes of a step are used.
	InnerEpochs int `yaml:"inner_epochs" min:"1"`
	// Minibatches is the number of weight updates in one inner epoch; it divides prompts_per_step.
	Minibatches int `yaml:"minibatches" min:"1"`
	// DropZeroSignal leaves groups whose rewards are all equal out of the loss and its divisors; false keeps them for
	// their KL penalty.
	DropZeroSignal bool `yaml:"drop_zero_signal"`

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
	// eval/em_<split> over eval_data. Empty keeps none.
	BestMetric string `yaml:"best_metric" free:"true"`
}

// Default returns the settings that hold where a file says nothing. It names no model and no data, so a file must.
func Default() *Config {
	return &Config{
		RunDir: "runs/default", Backend: "auto", DType: "f32",

		Reference:    "base",
		RandomLayers: 2, RandomHidden: 64, RandomHeads: 4, RandomKVHeads: 2, RandomIntermediate: 128,

		Task: "search", EvalData: []string{},
		RetrieverTimeoutSec: 30, RetrieverRetries: 2, BM25K1: 0.9, BM25B: 0.4,

		PromptSource: "config", SystemPrompt: DefaultPrompt, UserPrompt: DefaultPrompt, ChatTemplate: "auto",

		PromptsPerStep: 16, GroupSize: 8, Temperature: 1,
		MaxTurns: 4, MaxNewTokens: 512, TopK: 3, MaxObsTokens: 512, MaxContext: 2048,
		LongPrompt: "error",

		RewardEM: 1,

		AdvStdNorm: true, AdvEps: 1e-6, ClipLow: 0.2, ClipHigh: 0.2, KLCoef: 0.001, LossAgg: "token_mean",
		InnerEpochs: 1, Minibatches: 1,

		Steps: 200, LR: 1e-6, LRSchedule: "constant",
		AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEps: 1e-8, MaxGradNorm: 1, MicroBatchTokens: 4096,

		EvalEvery: 20, EvalAtStart: true, EvalSamples: 1, SampleEvery: 10, SaveEvery: 20, KeepLast: 2,
		BestMetric: "eval/em",
	}
}

// DefaultPrompt is the value of system_prompt and user_prompt that stands for the task's own text.
const DefaultPrompt = "default"
