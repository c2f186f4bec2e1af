// A gRPC server of the C++ library for conformance tests: the methods of tests/engines/servers/__init__.py, of bytes.
//
// It prints its port, and ends with its standard input. The one argument is the greatest age of a connection in
// milliseconds (0: none). Not built by default; with Debian's libgrpc++-dev:
//
//   g++ -std=c++17 tests/engines/servers/peer.cpp -o build/cpp-peer $(pkg-config --cflags --libs grpc++)
//   SMG_CPP_ENGINE=build/cpp-peer scripts/test -- tests/engines/test_servers.py

#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::atomic<long> sent{0};
std::atomic<long> cancelled{0};

grpc::ByteBuffer bytes(const std::string& text) {
  grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

std::string text_of(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string out;
  if (buffer.Dump(&slices).ok()) {
    for (const auto& slice : slices) out.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return out;
}

// One call: it reads the request, then writes what the method says, and finishes.
class Call : public grpc::ServerGenericBidiReactor {
 public:
  explicit Call(const std::string& path) : method_(path.substr(path.rfind('/') + 1)) {
    if (method_ == "Refuse") {
      Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full"));
    } else {
      StartRead(&request_);
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok || reading_done_) return;
    reading_done_ = true;
    const std::string request = text_of(request_);
    if (method_ == "Echo") {
      left_ = 1;
      message_ = request;
    } else if (method_ == "Flood") {
      long size = 0;
      std::istringstream(request) >> left_ >> size;
      message_.assign(size, 'x');
    } else if (method_ == "Tick") {
      std::istringstream(request) >> left_ >> pause_;
      message_ = "x";
    } else if (method_ == "Tally") {
      left_ = 1;
      message_ = std::to_string(sent) + " " + std::to_string(cancelled);
    } else if (method_ == "Stall" || method_ == "Break") {
      left_ = 1;
      message_ = "one";
    } else {
      Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, ""));
      return;
    }
    Next();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      End(grpc::Status(grpc::StatusCode::CANCELLED, ""));
      return;
    }
    if (method_ == "Flood") ++sent;
    if (pause_ > 0 && left_ > 0) {
      alarm_.Set(std::chrono::system_clock::now() + std::chrono::milliseconds(pause_), [this](bool) { Next(); });
    } else {
      Next();
    }
  }

  void OnCancel() override {
    ++cancelled;
    if (method_ == "Stall") End(grpc::Status(grpc::StatusCode::CANCELLED, ""));
  }

  void OnDone() override { delete this; }

 private:
  void Next() {
    if (left_ > 0) {
      --left_;
      out_ = bytes(message_);
      StartWrite(&out_);
    } else if (method_ == "Break") {
      End(grpc::Status(grpc::StatusCode::INTERNAL, "broken"));
    } else if (method_ != "Stall") {
      End(grpc::Status::OK);
    }
  }

  void End(const grpc::Status& status) {
    if (!ended_.exchange(true)) Finish(status);
  }

  const std::string method_;
  grpc::ByteBuffer request_, out_;
  std::string message_;
  long left_ = 0;
  long pause_ = 0;
  bool reading_done_ = false;
  std::atomic<bool> ended_{false};
  grpc::Alarm alarm_;
};

class Service : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    return new Call(context->method());
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int age = argc > 1 ? std::atoi(argv[1]) : 0;
  int port = 0;
  Service service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  if (age > 0) builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, age);
  builder.RegisterCallbackGenericService(&service);
  const auto server = builder.BuildAndStart();
  if (!server) return 1;
  std::cout << port << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}
