#include <algorithm>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/optimizer/matrix_updates.hpp>
#include <numeric>

namespace heddle {

namespace {

bool is_split(Parameter const& matrix, MeshShape const& mesh) {
  return std::ranges::any_of(
      mesh.model_axes(), [&](MeshAxis axis) { return mesh.size(axis) > 1 && matrix.placement().is_split_over(axis); });
}

/// The slices of the ranks that differ from this one along MeshShape::model_axes, in order.
std::vector<Slice> slices_of(Parameter const& matrix, Mesh const& mesh) {
  MeshShape const& shape = mesh.shape();
  MeshAxes const axes = shape.model_axes();
  std::vector<Slice> slices;
  for (int holder = 0; holder < shape.size(axes); ++holder) {
    slices.push_back(matrix.placement().slice(shape, shape.rank_at(axes, holder, mesh.rank())));
  }
  return slices;
}

/// The part of a whole matrix, whose rows may then be strided.
Tensor part_of(Tensor const& whole, Slice const& slice) {
  IndexRange const& rows = slice.ranges()[0];
  IndexRange const& columns = slice.ranges()[1];
  return whole.rows(rows.begin, rows.count()).columns(columns.begin, columns.count());
}

/// The sizes of one rank's buffers, in elements.
struct Buffers {
  std::int64_t received = 0;  ///< other ranks' slices of the matrices that it computes
  std::int64_t whole = 0;     ///< the largest of these
};

Buffers buffers_for(std::vector<DealtMatrix> const& dealt, Mesh const& mesh, MatrixRank const& own) {
  Buffers buffers;
  for (auto const& [each, by] : dealt) {
    Parameter const& matrix = *each;
    if (is_split(matrix, mesh.shape()) && by == own) {
      for (Slice const& slice : slices_of(matrix, mesh)) {
        buffers.received += slice.size();
      }
      buffers.received -= matrix.local_shape.size();
      buffers.whole = std::max(buffers.whole, matrix.global_shape().size());
    }
  }
  return buffers;
}

MatrixRank own_rank(Mesh const& mesh) {
  MeshShape const& shape = mesh.shape();
  return {shape.place(replica_axes(), mesh.rank()), shape.place(shape.model_axes(), mesh.rank())};
}

/// Whether the rank computes the matrix. One that no axis splits is computed by all holders in the replica.
bool computes(MatrixRank const& rank, DealtMatrix const& dealt, MeshShape const& mesh) {
  return is_split(*dealt.matrix, mesh) ? rank == dealt.by : rank.replica == dealt.by.replica;
}

bool is_owned_by(BufferShards const& parts, Parameter const& matrix, int replica) {
  auto const& buckets = parts.buckets();
  auto const ends_before = [&](auto const& bucket) { return bucket.range.end <= matrix.place.begin; };
  auto const bucket = std::ranges::partition_point(buckets, ends_before);
  return bucket != buckets.end() && bucket->owner == replica;
}

/// Whether a sum over the holders counts this rank's slice: of copies only the first.
bool counts(Parameter const& parameter, Mesh const& mesh) {
  return std::ranges::all_of(mesh.shape().model_axes(), [&](MeshAxis axis) {
    return parameter.placement().is_split_over(axis) || mesh.coordinate(axis) == 0;
  });
}

}  // namespace

std::vector<MatrixRank> deal_matrices(std::vector<Parameter const*> const& matrices, MeshShape const& mesh,
                                      int replicas) {
  std::vector<std::size_t> by_cost(matrices.size());
  std::iota(by_cost.begin(), by_cost.end(), 0);
  std::ranges::stable_sort(by_cost, std::ranges::greater(),
                           [&](std::size_t index) { return matrices[index]->matrix_cost; });
  auto const holders = static_cast<std::size_t>(mesh.size(mesh.model_axes()));
  std::vector<double> work(static_cast<std::size_t>(replicas) * holders);
  std::vector<MatrixRank> dealt(matrices.size());
  for (std::size_t const index : by_cost) {
    Parameter const& matrix = *matrices[index];
    auto const least = static_cast<std::size_t>(std::ranges::min_element(work) - work.begin());
    std::size_t const first = is_split(matrix, mesh) ? least : least / holders * holders;
    std::size_t const last = is_split(matrix, mesh) ? least : first + holders - 1;
    for (std::size_t rank = first; rank <= last; ++rank) {
      work[rank] += matrix.matrix_cost;
    }
    dealt[index] = {static_cast<int>(least / holders), static_cast<int>(least % holders)};
  }
  return dealt;
}

std::vector<DealtMatrix> deal_matrices(ParameterSet const& parameters, MeshShape const& mesh,
                                       BufferShards const* parts) {
  std::vector<DealtMatrix> all;
  for (int replica = 0; replica < (parts == nullptr ? 1 : mesh.size(replica_axes())); ++replica) {
    std::vector<Parameter const*> matrices = parameters.trained();
    std::erase_if(matrices, [&](Parameter const* each) {
      return each->matrix_cost == 0 || (parts != nullptr && !is_owned_by(*parts, *each, replica));
    });
    std::vector<MatrixRank> const dealt =
        deal_matrices(matrices, mesh, parts == nullptr ? mesh.size(replica_axes()) : 1);
    for (std::size_t index = 0; index < matrices.size(); ++index) {
      all.push_back({matrices[index], {replica + dealt[index].replica, dealt[index].holder}});
    }
  }
  std::ranges::sort(all, {}, [](DealtMatrix const& each) { return each.matrix->place.begin; });
  return all;
}

MatrixUpdates::MatrixUpdates(ParallelState const& parallel, ParameterSet const& parameters, Optimizer const& optimizer,
                             std::shared_ptr<TensorOps> operations, Execution& execution, BufferShards const* parts)
    : mesh_(parallel.mesh),
      replicas_(parts != nullptr ? Communicator::self() : parallel.replicas.after(execution)),
      holders_(parallel.group(parallel.mesh.shape().model_axes()).after(execution)),
      own_(own_rank(parallel.mesh)),
      operations_(std::move(operations)),
      execution_(execution) {
  DType const dtype = parameters.values().dtype();
  std::vector<DealtMatrix> const dealt = deal_matrices(parameters, mesh_.shape(), parts);
  if (Buffers const buffers = buffers_for(dealt, mesh_, own_); buffers.whole > 0) {
    received_ = Tensor::allocate(dtype, {buffers.received});
    whole_ = Tensor::allocate(dtype, {buffers.whole});
  }
  std::int64_t begin = 0;
  for (Optimizer::Matrix const& matrix : optimizer.matrices()) {
    Parameter const& parameter = *matrix.parameter;
    DealtMatrix const& own = *std::ranges::find(dealt, &parameter, &DealtMatrix::matrix);
    Work& work = works_.emplace_back(Work{matrix, own.by, {}, {}, {}});
    for (MatrixState const& state : matrix.state) {
      if (computes(own_, own, mesh_.shape())) {
        work.state.push_back(Tensor::allocate(dtype, state.shape));
      }
    }
    if (!is_split(parameter, mesh_.shape())) {
      continue;
    }
    work.slices = slices_of(parameter, mesh_);
    for (int holder = 0; own.by == own_ && holder < holders_.size(); ++holder) {
      std::int64_t const elements = work.slices[static_cast<std::size_t>(holder)].size();
      bool const is_own = holder == own_.holder;
      work.directions.push_back(is_own ? work.matrix.direction : received_.rows(begin, elements));
      begin += is_own ? 0 : elements;
    }
  }
}

std::int64_t MatrixUpdates::bytes() const {
  std::int64_t bytes = received_.bytes() + whole_.bytes();
  for (Work const& work : works_) {
    for (Tensor const& state : work.state) {
      bytes += state.bytes();
    }
  }
  return bytes;
}

std::int64_t MatrixUpdates::elements_for(ParameterSet const& parameters, Mesh const& mesh, BufferShards const* parts) {
  std::vector<DealtMatrix> const dealt = deal_matrices(parameters, mesh.shape(), parts);
  Buffers const buffers = buffers_for(dealt, mesh, own_rank(mesh));
  std::int64_t elements = buffers.received + buffers.whole;
  for (DealtMatrix const& each : dealt) {
    if (computes(own_rank(mesh), each, mesh.shape())) {
      for (auto const& [key, shape] : each.matrix->whole_state) {
        elements += shape.size();
      }
    }
  }
  return elements;
}

Tensor MatrixUpdates::state(Parameter const& matrix, std::string const& key) const {
  for (Work const& work : works_) {
    for (std::size_t index = 0; work.matrix.parameter == &matrix && index < work.state.size(); ++index) {
      if (work.matrix.state[index].key == key) {
        return work.state[index].reshaped({work.state[index].size()});
      }
    }
  }
  return {};
}

void MatrixUpdates::run(Optimizer const& optimizer, std::int64_t step) {
  exchange(Exchange::gather);
  for (Work const& work : works_) {
    compute(work, step);
  }
  exchange(Exchange::scatter);
  for (Work const& work : works_) {
    if (replicas_.size() > 1 && !work.matrix.parameter->still_frozen) {
      replicas_.broadcast(work.matrix.direction, work.by.replica);
    }
  }
  add_up_sizes(optimizer);
}

void MatrixUpdates::add_up_sizes(Optimizer const& optimizer) const {
  std::vector<Optimizer::Squares> squares = optimizer.squares(execution_);
  if (squares.empty()) {
    return;
  }
  std::vector<double> sums;
  for (Optimizer::Squares const& each : squares) {
    double const counted = counts(*each.parameter, mesh_) ? 1 : 0;
    sums.insert(sums.end(), {counted * each.value, counted * each.direction});
  }
  all_reduce_values(holders_, std::span(sums));
  auto next = sums.begin();
  for (Optimizer::Squares& each : squares) {
    each.value = *next++;
    each.direction = *next++;
  }
  optimizer.set_squares(squares);
}

void MatrixUpdates::exchange(Exchange kind) {
  std::vector<Transfer> transfers;
  for (Work const& work : works_) {
    if (work.slices.empty() || work.by.replica != own_.replica || work.matrix.parameter->still_frozen) {
      continue;
    }
    if (work.by.holder != own_.holder) {
      transfers.push_back(kind == Exchange::gather ? holders_.start_send(work.matrix.direction, work.by.holder)
                                                   : holders_.start_receive(work.matrix.direction, work.by.holder));
    }
    for (int holder = 0; holder < std::ssize(work.directions); ++holder) {
      Tensor const& direction = work.directions[static_cast<std::size_t>(holder)];
      if (holder != own_.holder) {
        transfers.push_back(kind == Exchange::gather ? holders_.start_receive(direction, holder)
                                                     : holders_.start_send(direction, holder));
      }
    }
  }
  for (Transfer& transfer : transfers) {
    transfer.wait();
  }
}

void MatrixUpdates::compute(Work const& work, std::int64_t step) {
  if (work.matrix.parameter->still_frozen) {
    return;
  }
  MatrixFunction& function = *work.matrix.function;
  std::int64_t const own_step = step - work.matrix.parameter->state_begin;
  if (work.slices.empty()) {
    if (work.by.replica == own_.replica) {
      function.apply(execution_, {work.matrix.direction, work.state, own_step});
    }
    return;
  }
  if (work.directions.empty()) {
    return;  // another rank's
  }
  Shape const& shape = work.matrix.parameter->global_shape();
  Tensor const whole = whole_.rows(0, shape.size()).reshaped(shape);
  for (std::size_t holder = 0; holder < work.slices.size(); ++holder) {
    Tensor const part = part_of(whole, work.slices[holder]);
    operations_->copy(execution_, work.directions[holder].reshaped(part.shape()), part);
  }
  function.apply(execution_, {whole, work.state, own_step});
  for (std::size_t holder = 0; holder < work.slices.size(); ++holder) {
    Tensor const part = part_of(whole, work.slices[holder]);
    operations_->copy(execution_, part, work.directions[holder].reshaped(part.shape()));
  }
}

}  // namespace heddle
