#include <algorithm>
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

Buffers buffers_for(std::vector<Parameter const*> const& matrices, std::vector<MatrixRank> const& dealt,
                    Mesh const& mesh, MatrixRank const& own) {
  Buffers buffers;
  for (std::size_t index = 0; index < matrices.size(); ++index) {
    Parameter const& matrix = *matrices[index];
    if (is_split(matrix, mesh.shape()) && dealt[index] == own) {
      for (Slice const& slice : slices_of(matrix, mesh)) {
        buffers.received += slice.size();
      }
      buffers.received -= matrix.local_shape.size();
      buffers.whole = std::max(buffers.whole, matrix.global_shape().size());
    }
  }
  return buffers;
}

/// This rank among those that divide the work.
MatrixRank own_rank(Mesh const& mesh, bool divided) {
  MeshShape const& shape = mesh.shape();
  return {divided ? 0 : shape.place(replica_axes(), mesh.rank()), shape.place(shape.model_axes(), mesh.rank())};
}

int replicas_of(MeshShape const& mesh, bool divided) {
  return divided ? 1 : mesh.size(replica_axes());
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

MatrixUpdates::MatrixUpdates(ParallelState const& parallel, Optimizer const& optimizer,
                             std::shared_ptr<TensorOps> operations, Execution& execution, bool divided)
    : replicas_(divided ? Communicator::self() : parallel.replicas.after(execution)),
      holders_(parallel.group(parallel.mesh.shape().model_axes()).after(execution)),
      own_(own_rank(parallel.mesh, divided)),
      operations_(std::move(operations)),
      execution_(execution) {
  Mesh const& mesh = parallel.mesh;
  std::vector<Optimizer::Matrix> const matrices = optimizer.matrices();
  std::vector<Parameter const*> parameters;
  std::ranges::transform(matrices, std::back_inserter(parameters), &Optimizer::Matrix::parameter);
  std::vector<MatrixRank> const dealt = deal_matrices(parameters, mesh.shape(), replicas_of(mesh.shape(), divided));
  Buffers const buffers = buffers_for(parameters, dealt, mesh, own_);
  if (buffers.whole > 0) {
    received_ = Tensor::allocate(matrices.front().direction.dtype(), {buffers.received});
    whole_ = Tensor::allocate(matrices.front().direction.dtype(), {buffers.whole});
  }
  std::int64_t begin = 0;
  for (std::size_t index = 0; index < matrices.size(); ++index) {
    Work& work = works_.emplace_back(Work{matrices[index], dealt[index], {}, {}});
    if (!is_split(*parameters[index], mesh.shape())) {
      continue;
    }
    work.slices = slices_of(*parameters[index], mesh);
    for (int holder = 0; dealt[index] == own_ && holder < holders_.size(); ++holder) {
      std::int64_t const elements = work.slices[static_cast<std::size_t>(holder)].size();
      bool const is_own = holder == own_.holder;
      work.directions.push_back(is_own ? work.matrix.direction : received_.rows(begin, elements));
      begin += is_own ? 0 : elements;
    }
  }
}

std::int64_t MatrixUpdates::elements_for(std::vector<Parameter const*> const& matrices, Mesh const& mesh,
                                         bool divided) {
  std::vector<MatrixRank> const dealt = deal_matrices(matrices, mesh.shape(), replicas_of(mesh.shape(), divided));
  Buffers const buffers = buffers_for(matrices, dealt, mesh, own_rank(mesh, divided));
  return buffers.received + buffers.whole;
}

void MatrixUpdates::run() {
  exchange(Exchange::gather);
  for (Work const& work : works_) {
    compute(work);
  }
  exchange(Exchange::scatter);
  for (Work const& work : works_) {
    replicas_.broadcast(work.matrix.direction, work.by.replica);
  }
}

void MatrixUpdates::exchange(Exchange kind) {
  std::vector<Transfer> transfers;
  for (Work const& work : works_) {
    if (work.slices.empty() || work.by.replica != own_.replica) {
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

void MatrixUpdates::compute(Work const& work) {
  MatrixFunction& function = *work.matrix.function;
  if (work.slices.empty()) {
    if (work.by.replica == own_.replica) {
      function.apply(execution_, work.matrix.direction);
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
  function.apply(execution_, whole);
  for (std::size_t holder = 0; holder < work.slices.size(); ++holder) {
    Tensor const part = part_of(whole, work.slices[holder]);
    operations_->copy(execution_, part, work.directions[holder].reshaped(part.shape()));
  }
}

}  // namespace heddle
