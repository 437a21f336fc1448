#include "runs_on.hpp"

namespace heddle {
namespace {

// The cases that do not run on all of 1, 2, 4 and 8 ranks.

// They need one process.
RunsOn const one_process({"DigestTest", "EfficiencyTest", "GradientBucketTest", "HostnameTest", "InquiryTest",
                          "KernelTimes", "LayerOfTest", "LayoutVariants", "MicroBatchCutTest", "NetworkModel",
                          "PipelineSchedule", "PipelineSimulation", "ShareTest"},
                         {1});

// Layouts are compared with one rank: each axis alone and two together on at most 4 ranks, three together on 8.
RunsOn const three_axes({"LayoutsTest", "LedgerFormulasTest"}, {2, 4, 8});
RunsOn const two_axes({"ContextAttentionCost", "ContextAttentionSplit", "ContextAttentionTest",
                       "LayoutsTest.OtherKindsOfModelTrainAsOnOneRank", "MixedPrecisionTest", "PlainLayerTest",
                       "Tasks/LayoutGenerationTest"},
                      {2, 4});

// On four and eight ranks AStepMovesWhatTheFormulasSay checks whole steps, two thirds of the layouts with one more
// layer.
RunsOn const two_ranks({"LedgerFormulasTest.ALayerMovesWhatTheFormulasSay"}, {2});

// The part `reshard` of scripts/torture: tensor 4 x pipeline 2 x data 3.
RunsOn const reshard({"ReshardTest"}, {24});

}  // namespace
}  // namespace heddle
