// The C functions that rank.py calls: memory, streams, and MSCCL++'s bootstrap, execution plans and executor.
// Those that give an int give -1 on errors, those that give a pointer null; judge_error says why.

#include <cuda_runtime.h>

#include <chrono>
#include <memory>
#include <mscclpp/core.hpp>
#include <mscclpp/executor.hpp>
#include <mscclpp/numa.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>

#define API extern "C" __attribute__((visibility("default")))
#define CHECK(call) check((call), #call)

// Instead of MSCCL++'s numa.cc, which needs libnuma and an entry in sysfs for every GPU.
namespace mscclpp {
__attribute__((visibility("default"))) int getDeviceNumaNode(int) { return -1; }
__attribute__((visibility("default"))) void numaBind(int) {}
}  // namespace mscclpp

namespace {

struct Rank {
  int rank;
  cudaStream_t stream;
  std::shared_ptr<mscclpp::TcpBootstrap> bootstrap;
  std::shared_ptr<mscclpp::Executor> executor;
  std::unordered_map<std::string, std::unique_ptr<mscclpp::ExecutionPlan>> plans;
};

std::string lastError;

void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}

template <typename F>
int guarded(F body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    lastError = error.what();
  }
  return -1;
}

}  // namespace

API const char* judge_error() { return lastError.c_str(); }

// Each rank has its own GPU where there are enough, and the first one otherwise.
API Rank* judge_open(int rank, int ranks, const char* address, int timeoutSeconds) {
  auto made = std::make_unique<Rank>();
  int failed = guarded([&] {
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaSetDevice(devices < ranks ? 0 : rank));
    CHECK(cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking));
    made->rank = rank;
    made->bootstrap = std::make_shared<mscclpp::TcpBootstrap>(rank, ranks);
    made->bootstrap->initialize(std::string(address), timeoutSeconds);
    made->executor = std::make_shared<mscclpp::Executor>(std::make_shared<mscclpp::Communicator>(made->bootstrap));
  });
  return failed ? nullptr : made.release();
}

API int judge_barrier(Rank* rank) {
  return guarded([&] { rank->bootstrap->barrier(); });
}

API void* judge_allocate(size_t bytes) {
  void* memory = nullptr;
  guarded([&] { CHECK(cudaMalloc(&memory, bytes)); });
  return memory;
}

// Between GPU and host, or on the GPU; on the stream, not waited for.
API int judge_copy(Rank* rank, void* target, const void* source, size_t bytes) {
  return guarded([&] { CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, rank->stream)); });
}

API int judge_execute(Rank* rank, const char* path, void* send, void* receive, size_t sendBytes, size_t receiveBytes,
                      int type) {
  return guarded([&] {
    auto& plan = rank->plans[path];
    if (!plan) plan = std::make_unique<mscclpp::ExecutionPlan>(path, rank->rank);
    rank->executor->execute(rank->rank, send, receive, sendBytes, receiveBytes, static_cast<mscclpp::DataType>(type),
                            *plan, rank->stream);
    CHECK(cudaGetLastError());
  });
}

// Between these two, execute sets up channels and memory, as every first call does, but launches nothing.
API int judge_begin_capture(Rank* rank) {
  return guarded([&] { CHECK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeRelaxed)); });
}

API int judge_drop_capture(Rank* rank) {
  return guarded([&] {
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(rank->stream, &graph));
    CHECK(cudaGraphDestroy(graph));
  });
}

// Waits for the stream without keeping a processor busy.
API int judge_wait(Rank* rank) {
  return guarded([&] {
    cudaError_t state;
    while ((state = cudaStreamQuery(rank->stream)) == cudaErrorNotReady)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    CHECK(state);
  });
}
