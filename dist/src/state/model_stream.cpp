#include <algorithm>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/parallel/resting.hpp>
#include <heddle/dist/state/model_stream.hpp>
#include <utility>

namespace heddle {

namespace {

/// The part of a whole tensor that one tensor rank holds.
struct LocalPart {
  IndexRange elements;      ///< in the stage's buffers; of state of another shape in that state
  std::int64_t run = 1;     ///< elements that are also adjacent in the whole tensor
  std::int64_t stride = 1;  ///< the distance there between the starts of such runs
  std::int64_t offset = 0;  ///< offset of the first one

  /// The number of its elements that are before index `whole` of the whole tensor. They are in the same order there.
  std::int64_t before(std::int64_t whole) const {
    std::int64_t const beyond = std::max<std::int64_t>(whole - offset, 0);
    return beyond / stride * run + std::min(beyond % stride, run);
  }
};

LocalPart local_part(ParameterDescription const& parameter, int tensor_rank, int tensor_ranks) {
  std::int64_t const size = parameter.shape.size();
  if (!is_split(parameter.shard)) {
    return {{parameter.place.begin, parameter.place.begin + size}, size, size, 0};
  }
  int const axis = parameter.shard.axis;
  std::int64_t inner = 1;
  for (int later = axis + 1; later < parameter.shape.rank(); ++later) {
    inner *= parameter.shape[later];
  }
  std::int64_t const extent = parameter.shape[axis];
  IndexRange const held = share(extent, tensor_rank, tensor_ranks);
  std::int64_t const local = size / extent * held.count();
  return {
      {parameter.place.begin, parameter.place.begin + local}, held.count() * inner, extent * inner, held.begin * inner};
}

/// Whether it has another shape than its parameter. It is of a whole parameter, which no tensor ranks divide.
bool has_other_shape(StateTensor const* state) {
  return state != nullptr && state->shape != StateShape::parameter;
}

IndexRange common(IndexRange const& left, IndexRange const& right) {
  return {std::max(left.begin, right.begin), std::min(left.end, right.end)};
}

}  // namespace

/// Consecutive elements of one rank's buffers, all in one chunk.
struct ModelStream::Piece {
  int rank;  ///< rank in the world
  IndexRange elements;
  LocalPart part;

  /// Copies the elements to their places in the chunk, which begins at `begin` of the whole tensor.
  void place(std::span<float const> from, std::int64_t begin, std::span<float> chunk) const {
    std::int64_t local = elements.begin - part.elements.begin;
    while (!from.empty()) {
      std::int64_t const within = local % part.run;
      std::size_t const count = std::min(static_cast<std::size_t>(part.run - within), from.size());
      std::int64_t const to = local / part.run * part.stride + part.offset + within - begin;
      std::copy_n(from.begin(), count, chunk.begin() + to);
      from = from.subspan(count);
      local += static_cast<std::int64_t>(count);
    }
  }
};

ModelStream::ModelStream(ParallelState const& parallel, WholeModel const& model, ParameterSet const& parameters,
                         DistributedOptimizer const& optimizer, std::set<std::string> const& left_out)
    : parallel_(parallel), parameters_(parameters), optimizer_(optimizer) {
  model.for_each_parameter([&](ParameterDescription const& parameter) {
    if (!left_out.contains(parameter.name)) {
      sources_.push_back({parameter.stages.front(), &parameter});
    }
  });
  for (auto const& stage : model.stages()) {
    std::vector<PlacedParameter> placed;
    for (ParameterDescription const& parameter : stage) {
      if (parameter.trained) {
        placed.push_back({parameter.place, parameter.stages.size() > 1, parameter.whole});
      }
    }
    if (optimizer.sharded()) {
      parts_.emplace_back(placed, optimizer.bucket_elements(), parallel.replicas.size());
    }
  }
  std::sort(sources_.begin(), sources_.end(),
            [](Source const& a, Source const& b) { return a.parameter->name < b.parameter->name; });
  for (Source const& source : sources_) {
    StreamedTensor& tensor =
        tensors_.emplace_back(StreamedTensor{source.parameter->name, source.parameter->shape.to_vector()});
    tensor.dtype = source.parameter->rounded ? DType::bfloat16 : DType::float32;
    for (StateTensor const& state : source.parameter->state) {
      tensor.keys.push_back(state.key);
      if (has_other_shape(&state)) {
        tensor.other_shapes[state.key] = shape_of(state.shape, source.parameter->shape).to_vector();
      }
    }
  }
}

StateTensor const* ModelStream::state_of(TensorChunk const& chunk) const {
  return chunk.key == 0 ? nullptr : &sources_[chunk.tensor].parameter->state[chunk.key - 1];
}

std::vector<ModelStream::Piece> ModelStream::pieces(TensorChunk const& chunk, int receiver) const {
  auto const& [stage, parameter] = sources_[chunk.tensor];
  MeshShape const& shape = parallel_.mesh.shape();
  int const tensor_ranks = shape.size(MeshAxis::tensor);
  int const replicas = shape.size(replica_axes());
  bool const split = is_split(parameter->shard);
  bool const other = has_other_shape(state_of(chunk));
  int const same_stage = shape.rank_at({MeshAxis::pipeline}, stage, receiver);
  std::vector<Piece> found;
  for (int turn = 0; turn < (split ? tensor_ranks : 1); ++turn) {
    int const tensor_rank = split ? turn : shape.coordinate(MeshAxis::tensor, receiver);
    std::int64_t const size = other ? shape_of(state_of(chunk)->shape, parameter->shape).size() : 0;
    LocalPart const part =
        other ? LocalPart{{0, size}, size, size, 0} : local_part(*parameter, tensor_rank, tensor_ranks);
    IndexRange const wanted{part.elements.begin + part.before(chunk.elements.begin),
                            part.elements.begin + part.before(chunk.elements.end)};
    int const same_part = shape.rank_at({MeshAxis::tensor}, tensor_rank, same_stage);
    auto const add = [&](int replica, IndexRange const& elements) {
      if (elements.begin < elements.end) {
        found.push_back({shape.rank_at(replica_axes(), replica, same_part), elements, part});
      }
    };
    if (parts_.empty() || chunk.key == 0) {
      add(shape.place(replica_axes(), receiver), wanted);
      continue;
    }
    BufferParts const& parts = parts_[static_cast<std::size_t>(stage)];
    if (other) {
      add(parts.owner(parameter->place.begin), wanted);
      continue;
    }
    auto const ends_before = [](BufferParts::Bucket const& bucket, std::int64_t begin) {
      return bucket.range.end <= begin;
    };
    for (auto bucket = std::lower_bound(parts.buckets().begin(), parts.buckets().end(), wanted.begin, ends_before);
         bucket != parts.buckets().end() && bucket->range.begin < wanted.end; ++bucket) {
      for (int replica = 0; replica < replicas; ++replica) {
        add(replica, common(wanted, parts.part(*bucket, replica)));
      }
    }
  }
  return found;
}

Tensor ModelStream::own(TensorChunk const& chunk, Piece const& piece) const {
  if (chunk.key == 0) {
    return parameters_.values_in(piece.elements);
  }
  StateTensor const* const state = state_of(chunk);
  if (has_other_shape(state)) {
    std::int64_t const begin = sources_[chunk.tensor].parameter->place.begin;
    IndexRange const all{begin, begin + sources_[chunk.tensor].parameter->shape.size()};
    return optimizer_.local().state_in(state->key, all).rows(piece.elements.begin, piece.elements.count());
  }
  return optimizer_.local().state_in(state->key, piece.elements);
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
    wait_resting(transfer);
  }
  earlier_sends_ = std::move(sends_);
  sends_.clear();
}

}  // namespace heddle
