#include "mpi_communicator.hpp"

#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <cstring>
#include <heddle/core/error.hpp>
#include <limits>

#include "mpi_call.hpp"

namespace heddle {

namespace {

constexpr bool memory_is_host_readable =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, Kokkos::DefaultExecutionSpace::memory_space>::accessible;

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return MPI_FLOAT;
    case DType::bfloat16:
      return MPI_UINT16_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::float64:
      return MPI_DOUBLE;
  }
  return MPI_DATATYPE_NULL;
}

std::byte* address(Tensor const& tensor, std::int64_t element) {
  return static_cast<std::byte*>(tensor.raw()) + element * static_cast<std::int64_t>(size_of(tensor.dtype()));
}

void copy_elements(Tensor const& from, std::int64_t from_element, Tensor const& to, std::int64_t to_element,
                   std::int64_t count) {
  std::memcpy(address(to, to_element), address(from, from_element),
              static_cast<std::size_t>(count) * size_of(from.dtype()));
}

/// What goes ahead of each message, since MPI itself accepts a shorter message and any type of element.
struct Header {
  std::int64_t dtype;
  std::int64_t elements;
};
constexpr int header_words = 2;

float sum(float left, float right) {
  return left + right;
}
float larger(float left, float right) {
  return std::max(left, right);
}
float smaller(float left, float right) {
  return std::min(left, right);
}

template <float (*combine)(float, float)>
void combine_bfloat16(void* input, void* in_out, int* count, MPI_Datatype* /*type*/) {
  auto const* const from = static_cast<BFloat16 const*>(input);
  auto* const into = static_cast<BFloat16*>(in_out);
  for (int index = 0; index < *count; ++index) {
    into[index] = BFloat16(combine(static_cast<float>(from[index]), static_cast<float>(into[index])));
  }
}

}  // namespace

class BFloat16Operations {
 public:
  BFloat16Operations() {
    constexpr std::array<MPI_User_function*, 3> functions{combine_bfloat16<sum>, combine_bfloat16<larger>,
                                                          combine_bfloat16<smaller>};
    for (std::size_t index = 0; index < functions.size(); ++index) {
      check_mpi(MPI_Op_create(functions[index], 1, &operations_[index]), "start");
    }
  }
  ~BFloat16Operations() {
    if (mpi_is_running()) {
      for (MPI_Op& operation : operations_) {
        MPI_Op_free(&operation);
      }
    }
  }
  BFloat16Operations(BFloat16Operations const&) = delete;
  BFloat16Operations& operator=(BFloat16Operations const&) = delete;

  MPI_Op operator[](ReduceOp op) const { return operations_[static_cast<std::size_t>(op)]; }

 private:
  std::array<MPI_Op, 3> operations_{MPI_OP_NULL, MPI_OP_NULL, MPI_OP_NULL};
};

std::shared_ptr<MpiCommunicator> MpiCommunicator::duplicate(MPI_Comm parent, std::int64_t elements_per_call) {
  if (elements_per_call < 1 || elements_per_call > std::numeric_limits<int>::max()) {
    throw Error(fmt::format("one MPI call can not move {} elements", elements_per_call));
  }
  if (!memory_is_host_readable) {
    throw ConfigError("several ranks on devices whose memory the host can not read: GPU staging is not built");
  }
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(parent, &handle), "duplicate");
  return std::shared_ptr<MpiCommunicator>(
      new MpiCommunicator(handle, elements_per_call, std::make_shared<BFloat16Operations const>()));
}

MpiCommunicator::MpiCommunicator(MPI_Comm handle, std::int64_t elements_per_call,
                                 std::shared_ptr<BFloat16Operations const> bfloat16_operations)
    : handle_(handle), elements_per_call_(elements_per_call), bfloat16_operations_(std::move(bfloat16_operations)) {
  check_mpi(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "start");
  check_mpi(MPI_Comm_rank(handle_, &rank_), "start");
  check_mpi(MPI_Comm_size(handle_, &size_), "start");
}

MpiCommunicator::~MpiCommunicator() {
  if (mpi_is_running()) {
    MPI_Comm_free(&handle_);
  }
}

std::vector<MpiCommunicator::Piece> MpiCommunicator::pieces(std::int64_t elements) const {
  std::vector<Piece> result;
  for (std::int64_t begin = 0; begin < elements; begin += elements_per_call_) {
    result.push_back({begin, static_cast<int>(std::min(elements_per_call_, elements - begin))});
  }
  return result;
}

MPI_Op MpiCommunicator::operation(DType dtype, ReduceOp op) const {
  if (dtype == DType::bfloat16) {
    return (*bfloat16_operations_)[op];
  }
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::min:
      return MPI_MIN;
  }
  return MPI_OP_NULL;
}

void MpiCommunicator::all_reduce(Tensor const& tensor, ReduceOp op) {
  for (auto const [begin, count] : pieces(tensor.size())) {
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, address(tensor, begin), count, type_of(tensor.dtype()),
                            operation(tensor.dtype(), op), handle_),
              "all_reduce");
  }
}

void MpiCommunicator::reduce_scatter(Tensor const& input, Tensor const& output, ReduceOp op) {
  MPI_Datatype const type = type_of(input.dtype());
  MPI_Op const operation_here = operation(input.dtype(), op);
  if (input.size() <= elements_per_call_) {
    check_mpi(MPI_Reduce_scatter_block(input.raw(), output.raw(), static_cast<int>(output.size()), type, operation_here,
                                       handle_),
              "reduce_scatter");
    return;
  }
  for (int part = 0; part < size_; ++part) {
    for (auto const [begin, count] : pieces(output.size())) {
      void* const result = part == rank_ ? address(output, begin) : nullptr;
      check_mpi(
          MPI_Reduce(address(input, part * output.size() + begin), result, count, type, operation_here, part, handle_),
          "reduce_scatter");
    }
  }
}

void MpiCommunicator::all_gather(Tensor const& input, Tensor const& output) {
  MPI_Datatype const type = type_of(input.dtype());
  if (output.size() <= elements_per_call_) {
    int const count = static_cast<int>(input.size());
    check_mpi(MPI_Allgather(input.raw(), count, type, output.raw(), count, type, handle_), "all_gather");
    return;
  }
  copy_elements(input, 0, output, rank_ * input.size(), input.size());
  for (int part = 0; part < size_; ++part) {
    for (auto const [begin, count] : pieces(input.size())) {
      check_mpi(MPI_Bcast(address(output, part * input.size() + begin), count, type, part, handle_), "all_gather");
    }
  }
}

void MpiCommunicator::all_to_all(Tensor const& input, Tensor const& output) {
  MPI_Datatype const type = type_of(input.dtype());
  std::int64_t const part = input.size() / size_;
  if (input.size() <= elements_per_call_) {
    int const count = static_cast<int>(part);
    check_mpi(MPI_Alltoall(input.raw(), count, type, output.raw(), count, type, handle_), "all_to_all");
    return;
  }
  for (int step = 0; step < size_; ++step) {
    int const destination = (rank_ + step) % size_;
    int const source = (rank_ - step + size_) % size_;
    for (auto const [begin, count] : pieces(part)) {
      check_mpi(
          MPI_Sendrecv(address(input, destination * part + begin), count, type, destination, step,
                       address(output, source * part + begin), count, type, source, step, handle_, MPI_STATUS_IGNORE),
          "all_to_all");
    }
  }
}

void MpiCommunicator::broadcast(Tensor const& tensor, int root) {
  for (auto const [begin, count] : pieces(tensor.size())) {
    check_mpi(MPI_Bcast(address(tensor, begin), count, type_of(tensor.dtype()), root, handle_), "broadcast");
  }
}

void MpiCommunicator::send(Tensor const& tensor, int destination, int tag) {
  Header const header{static_cast<std::int64_t>(tensor.dtype()), tensor.size()};
  check_mpi(MPI_Send(&header, header_words, MPI_INT64_T, destination, tag, handle_), "send");
  for (auto const [begin, count] : pieces(tensor.size())) {
    check_mpi(MPI_Send(address(tensor, begin), count, type_of(tensor.dtype()), destination, tag, handle_), "send");
  }
}

void MpiCommunicator::receive(Tensor const& tensor, int source, int tag) {
  Header header{};
  check_mpi(MPI_Recv(&header, header_words, MPI_INT64_T, source, tag, handle_, MPI_STATUS_IGNORE), "receive");
  auto const sent = static_cast<DType>(header.dtype);
  Tensor target = tensor;
  bool const matches = sent == tensor.dtype() && header.elements == tensor.size();
  if (!matches) {
    // Taken off the wire all the same: the sender may be waiting, and the next message must not be met by the wrong
    // one.
    target = Tensor::allocate(sent, {header.elements});
  }
  for (auto const [begin, count] : pieces(header.elements)) {
    check_mpi(MPI_Recv(address(target, begin), count, type_of(sent), source, tag, handle_, MPI_STATUS_IGNORE),
              "receive");
  }
  if (!matches) {
    throw Error(fmt::format("receive: rank {} expected {} {} from rank {} with tag {}, but it sent {} elements of {}",
                            rank_, name_of(tensor.dtype()), tensor.shape().to_string(), source, tag, header.elements,
                            name_of(sent)));
  }
}

void MpiCommunicator::barrier() {
  check_mpi(MPI_Barrier(handle_), "barrier");
}

std::shared_ptr<CommunicatorBackend> MpiCommunicator::split(int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(handle_, color, key, &part), "split");
  return std::shared_ptr<MpiCommunicator>(new MpiCommunicator(part, elements_per_call_, bfloat16_operations_));
}

}  // namespace heddle
