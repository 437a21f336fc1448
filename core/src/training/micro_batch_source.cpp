#include <heddle/core/training/micro_batch_source.hpp>

namespace heddle {

ContextSplit context_split(Mesh const& mesh) {
  auto const member = [&](MeshAxis axis) { return GroupMember{mesh.coordinate(axis), mesh.size(axis)}; };
  return {member(MeshAxis::context), member(MeshAxis::decoder_tensor), member(MeshAxis::encoder_tensor)};
}

MicroBatchCut micro_batch_cut(TrainConfig const& train, ParallelState const& parallel) {
  MicroBatchCut cut{
      .max_tokens = train.micro_batch_tokens, .context = context_split(parallel.mesh), .passes = train.passes()};
  if (!train.deterministic) {
    cut.data = {parallel.data.rank(), parallel.data.size()};
    cut.equal = parallel.pipeline.size() > 1;
  }
  return cut;
}

BatchTokens RepeatedPack::tokens() const {
  std::int64_t const source = pack_.source_rows.tokens;
  std::int64_t const target = pack_.target_rows.tokens;
  return {count_ * (target > 0 ? target : source),
          count_ * (source + target)};  // an encoder-only model predicts its source
}

}  // namespace heddle
