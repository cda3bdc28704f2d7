// Package ablation answers questions about the method by experiment: it trains the variants of a suite with several
// seeds each, and compares what they reach.
//
//	suite, err := ablation.Load("configs/ablations/loss_mask.yaml")
//	grid, err := suite.Grid(ablation.GridOptions{Out: "runs/ablations"})
//	outcome, err := grid.Run(ctx, ablation.RunOptions{Parallel: 1, Out: os.Stdout})
//	results, missing, err := grid.Results()
//	fmt.Print(ablation.Table(suite, results))
//
// Each run of a grid is an ordinary training run with a showcase, in a folder of its own, so that it resumes as every
// run does. It counts once its result file is there, which is written last and in one piece; nothing is ever read from
// a run that is not complete. The runs of all variants with one seed see the same questions in the same order, so that
// differences between variants are taken seed by seed.
//
// Left out: searches over settings, tests of significance beyond the interval, and machines other than this one.
package ablation
