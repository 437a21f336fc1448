#include <algorithm>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/parallel/backoff.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/state/model_stream.hpp>
#include <sstream>
#include <utility>

namespace heddle {

namespace {

IndexRange common(IndexRange const& left, IndexRange const& right) {
  return {std::max(left.begin, right.begin), std::min(left.end, right.end)};
}

}  // namespace

/// Consecutive elements of one rank's slice, all in one chunk.
struct ModelStream::Piece {
  int rank;  ///< rank in the world
  Slice slice;
  IndexRange elements;  ///< of the slice

  /// Copies the elements to their places in the chunk, which begins at `begin` of the whole tensor.
  void place(std::span<float const> from, std::int64_t begin, std::span<float> chunk) const {
    slice.for_each_run(elements, [&](std::int64_t first, std::int64_t index, std::int64_t count) {
      std::copy_n(from.begin() + (first - elements.begin), count, chunk.begin() + (index - begin));
    });
  }
};

ModelStream::ModelStream(ParallelState const& parallel, WholeModel const& model, ParameterSet const& parameters,
                         DistributedOptimizer const& optimizer, std::set<std::string> const& left_out)
    : parallel_(parallel), parameters_(parameters), optimizer_(optimizer) {
  model.for_each_parameter([&](ParameterDescription const& parameter) {
    if (!left_out.contains(parameter.name)) {
      sources_.push_back({parameter.placement.stages.front(), &parameter});
    }
  });
  if (optimizer.sharded()) {
    std::vector<BufferShards::Bucket> const& own = optimizer.reducer().parts().buckets();
    for (auto& buckets : gather_lists<BufferShards::Bucket>(parallel.pipeline, own)) {
      parts_.emplace_back(std::move(buckets), parallel.replicas.size());
    }
  }
  std::vector<MatrixRank> own_ranks;
  std::string own_names;
  for (DealtMatrix const& dealt : optimizer.dealt_matrices()) {
    own_ranks.push_back(dealt.by);
    own_names += dealt.matrix->spec.name + "\n";
  }
  auto const ranks = gather_lists<MatrixRank>(parallel.pipeline, own_ranks);
  for (std::string const& text : gather_texts(parallel.pipeline, own_names)) {
    auto& of_stage = matrix_ranks_.emplace_back();
    std::istringstream names(text);
    for (MatrixRank const& rank : ranks[matrix_ranks_.size() - 1]) {
      std::string name;
      std::getline(names, name);
      of_stage[name] = rank;
    }
  }
  std::sort(sources_.begin(), sources_.end(),
            [](Source const& a, Source const& b) { return a.parameter->name < b.parameter->name; });
  for (Source const& source : sources_) {
    ParameterDescription const& parameter = *source.parameter;
    StreamedTensor& tensor =
        tensors_.emplace_back(StreamedTensor{parameter.name, parameter.placement.global_shape.to_vector()});
    tensor.dtype = parameter.rounded ? DType::bfloat16 : DType::float32;
    tensor.keys.insert(tensor.keys.end(), parameter.state.begin(), parameter.state.end());
    for (auto const& [key, shape] : parameter.whole_state) {
      tensor.other_shapes[key] = shape.to_vector();
    }
  }
}

std::vector<ModelStream::Piece> ModelStream::pieces(TensorChunk const& chunk, int receiver) const {
  auto const& [stage, parameter] = sources_[chunk.tensor];
  MeshShape const& shape = parallel_.mesh.shape();
  MeshAxes split = shape.model_axes();
  std::erase_if(split, [&](MeshAxis axis) { return !parameter->placement.is_split_over(axis); });
  int const same_stage = shape.rank_at({MeshAxis::pipeline}, stage, receiver);
  std::vector<Piece> found;
  if (auto const whole = whole_shape(chunk)) {
    MatrixRank const& by = matrix_ranks_[static_cast<std::size_t>(stage)].at(parameter->name);
    int const rank =
        shape.rank_at(shape.model_axes(), by.holder, shape.rank_at(replica_axes(), by.replica, same_stage));
    return {{rank, Slice(whole->to_vector(), {}), chunk.elements}};
  }
  for (int place = 0; place < shape.size(split); ++place) {
    int const holder = shape.rank_at(split, place, same_stage);
    Slice const slice = parameter->placement.slice(shape, holder);
    IndexRange const wanted{slice.before(chunk.elements.begin), slice.before(chunk.elements.end)};
    auto const add = [&](int rank, IndexRange const& elements) {
      if (elements.begin < elements.end) {
        found.push_back({rank, slice, elements});
      }
    };
    bool const divided = chunk.key == 0 ? parameter->section.count() > 0 : !parts_.empty();
    if (!divided) {
      add(holder, wanted);
      continue;
    }
    // Frozen parameters, which are in none of the stage's buckets, are divided as a bucket is.
    BufferShards const of_section({{.range = parameter->section, .parts = parameter->section_parts}},
                                  shape.size(replica_axes()));
    BufferShards const& parts = chunk.key == 0 ? of_section : parts_[static_cast<std::size_t>(stage)];
    std::int64_t const begin = parameter->place.begin;
    IndexRange const in_buffer{begin + wanted.begin, begin + wanted.end};
    auto bucket = std::ranges::partition_point(
        parts.buckets(), [&](BufferShards::Bucket const& each) { return each.range.end <= in_buffer.begin; });
    for (; bucket != parts.buckets().end() && bucket->range.begin < in_buffer.end; ++bucket) {
      for (int replica = 0; replica < parts.first_copy(*bucket); ++replica) {
        IndexRange const owned = common(in_buffer, parts.part(*bucket, replica));
        add(shape.rank_at(replica_axes(), replica, holder), {owned.begin - begin, owned.end - begin});
      }
    }
  }
  return found;
}

std::optional<Shape> ModelStream::whole_shape(TensorChunk const& chunk) const {
  ParameterDescription const& parameter = *sources_[chunk.tensor].parameter;
  auto const found =
      chunk.key == 0 ? parameter.whole_state.end() : parameter.whole_state.find(parameter.state[chunk.key - 1]);
  return found == parameter.whole_state.end() ? std::nullopt : std::optional(found->second);
}

Tensor ModelStream::own(TensorChunk const& chunk, Piece const& piece) const {
  ParameterDescription const& parameter = *sources_[chunk.tensor].parameter;
  if (whole_shape(chunk)) {
    return optimizer_.state_in(*parameters_.find(parameter.name), parameter.state[chunk.key - 1], piece.elements);
  }
  IndexRange const in_buffer{parameter.place.begin + piece.elements.begin, parameter.place.begin + piece.elements.end};
  return chunk.key == 0 ? parameters_.values_in(in_buffer)
                        : optimizer_.local().state_in(parameter.state[chunk.key - 1], in_buffer);
}

void ModelStream::send(TensorChunk const& chunk, int receiver) {
  for (Piece const& piece : pieces(chunk, receiver)) {
    if (piece.rank == parallel_.world.rank()) {
      sends_.push_back(parallel_.world.start_send(own(chunk, piece), receiver));
    }
  }
}

void ModelStream::receive(TensorChunk const& chunk, std::span<float> elements) {
  int const rank = parallel_.world.rank();
  for (Piece const& piece : pieces(chunk, rank)) {
    std::int64_t const count = piece.elements.count();
    Tensor source;
    if (piece.rank == rank) {
      source = own(chunk, piece);
    } else {
      DType const dtype = tensors_[chunk.tensor].dtype;
      Tensor& received = dtype == DType::bfloat16 ? received_rounded_ : received_;
      if (received.size() < count) {
        received = Tensor::allocate_on_host(dtype, {count});
      }
      source = received.rows(0, count);
      parallel_.world.receive(source, piece.rank);
    }
    if (source.dtype() == DType::bfloat16) {
      auto const halves = to_host<BFloat16>(source);
      staged_.resize(halves.size());
      std::ranges::transform(halves, staged_.begin(), [](BFloat16 half) { return static_cast<float>(half); });
      piece.place(staged_, chunk.elements.begin, elements);
    } else if (source.space() == MemorySpace::host) {
      piece.place({source.data<float>(), static_cast<std::size_t>(count)}, chunk.elements.begin, elements);
    } else {
      staged_.resize(static_cast<std::size_t>(count));
      copy_to_host(staged_.data(), source);
      piece.place(staged_, chunk.elements.begin, elements);
    }
  }
}

void ModelStream::wait() {
  for (Transfer& transfer : earlier_sends_) {
    wait_with_backoff(transfer);
  }
  earlier_sends_ = std::move(sends_);
  sends_.clear();
}

}  // namespace heddle
