#include <algorithm>
#include <heddle/core/base/index_range.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <span>

namespace heddle {

namespace {

/// The part of a whole tensor that one tensor rank holds.
struct LocalPart {
  IndexRange elements;      ///< in the stage's buffers
  std::int64_t run = 1;     ///< elements that are also adjacent in the whole tensor
  std::int64_t stride = 1;  ///< the distance there between the starts of such runs
  std::int64_t offset = 0;  ///< of the first one
};

LocalPart local_part(ParameterDescription const& parameter, int tensor_rank, int tensor_ranks) {
  std::int64_t const size = parameter.shape.size();
  int const axis = parameter.shard.axis;
  if (axis < 0 || parameter.shard.mesh_axis != MeshAxis::tensor) {
    return {{parameter.place.begin, parameter.place.begin + size}, size, size, 0};
  }
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

/// Copies a piece of a local part, which begins at `begin` of the buffers, to its place.
void place(std::vector<float> const& piece, std::int64_t begin, LocalPart const& part, std::vector<float>& whole) {
  std::int64_t local = begin - part.elements.begin;
  for (std::size_t done = 0; done < piece.size();) {
    std::int64_t const within = local % part.run;
    auto const count = std::min(static_cast<std::size_t>(part.run - within), piece.size() - done);
    std::int64_t const to = local / part.run * part.stride + part.offset + within;
    std::copy_n(piece.begin() + static_cast<std::ptrdiff_t>(done), count, whole.begin() + to);
    done += count;
    local += static_cast<std::int64_t>(count);
  }
}

class Gathering {
 public:
  Gathering(ParallelState const& parallel, WholeModel const& model, ParameterSet const& parameters,
            DistributedOptimizer const& optimizer)
      : parallel_(parallel), model_(model), parameters_(parameters), optimizer_(optimizer) {}

  std::vector<WholeTensor> run() {
    for (std::size_t stage = 0; stage < model_.stages().size(); ++stage) {
      find_owners(model_.stages()[stage]);
      for (ParameterDescription const& parameter : model_.stages()[stage]) {
        if (parameter.stages.front() == static_cast<int>(stage)) {
          gather(static_cast<int>(stage), parameter);
        }
      }
    }
    return std::move(tensors_);
  }

 private:
  bool collects() const { return parallel_.world.rank() == 0; }

  void find_owners(std::vector<ParameterDescription> const& stage) {
    owners_.clear();
    if (!optimizer_.sharded()) {
      owners_.push_back({{0, stage.empty() ? 0 : stage.back().place.end}});
      return;
    }
    int const replicas = parallel_.replicas.size();
    std::vector<PlacedParameter> placed;
    for (ParameterDescription const& parameter : stage) {
      placed.push_back({parameter.place, parameter.stages.size() > 1});
    }
    BufferParts const parts(placed, optimizer_.bucket_elements(), replicas);
    for (int replica = 0; replica < replicas; ++replica) {
      owners_.push_back(parts.parts_of(replica));
    }
  }

  void gather(int stage, ParameterDescription const& parameter) {
    WholeTensor whole{parameter.name, parameter.shape, {}, {}, {}};
    if (collects()) {
      auto const size = static_cast<std::size_t>(parameter.shape.size());
      for (auto* const elements : {&whole.value, &whole.first_moment, &whole.second_moment}) {
        elements->resize(size);
      }
    }
    int const tensor_ranks = parallel_.mesh.size(MeshAxis::tensor);
    bool const split = parameter.shard.axis >= 0 && parameter.shard.mesh_axis == MeshAxis::tensor;
    for (int tensor_rank = 0; tensor_rank < (split ? tensor_ranks : 1); ++tensor_rank) {
      LocalPart const part = local_part(parameter, tensor_rank, tensor_ranks);
      auto const world_rank = [&](std::size_t replica) {
        return (stage * parallel_.replicas.size() + static_cast<int>(replica)) * tensor_ranks + tensor_rank;
      };
      bring(world_rank(0), part, part.elements, whole.value,
            [&] { return parameters_.values().rows(part.elements.begin, part.elements.count()); });
      for (std::size_t replica = 0; replica < owners_.size(); ++replica) {
        Optimizer const& kept = optimizer_.moments();
        for (IndexRange const& piece : intersection({part.elements}, owners_[replica])) {
          bring(world_rank(replica), part, piece, whole.first_moment,
                [&] { return kept.moments_in(kept.first_moments(), piece); });
          bring(world_rank(replica), part, piece, whole.second_moment,
                [&] { return kept.moments_in(kept.second_moments(), piece); });
        }
      }
    }
    if (collects()) {
      tensors_.push_back(std::move(whole));
    }
  }

  /// Sends a piece from the rank that has it, as own(), into the whole tensor on world rank 0. All ranks make the
  /// calls in the same order; those that are neither do nothing.
  template <class Own>
  void bring(int source, LocalPart const& part, IndexRange const& piece, std::vector<float>& whole, Own const& own) {
    if (parallel_.world.rank() == source) {
      if (collects()) {
        place(to_host<float>(own()), piece.begin, part, whole);
      } else {
        parallel_.world.send(own(), 0);
      }
    } else if (collects()) {
      if (received_.size() < piece.count()) {
        received_ = Tensor::allocate(DType::float32, {piece.count()});
      }
      Tensor const message = received_.rows(0, piece.count());
      parallel_.world.receive(message, source);
      place(to_host<float>(message), piece.begin, part, whole);
    }
  }

  ParallelState const& parallel_;
  WholeModel const& model_;
  ParameterSet const& parameters_;
  DistributedOptimizer const& optimizer_;
  std::vector<std::vector<IndexRange>>
      owners_;  ///< [replica]: the ranges of the stage's buffers whose moments it keeps
  std::vector<WholeTensor> tensors_;
  Tensor received_;
};

}  // namespace

std::vector<WholeTensor> gather_whole_tensors(ParallelState const& parallel, WholeModel const& model,
                                              ParameterSet const& parameters, DistributedOptimizer const& optimizer) {
  return Gathering(parallel, model, parameters, optimizer).run();
}

}  // namespace heddle
