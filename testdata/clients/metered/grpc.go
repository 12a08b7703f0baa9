package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("grpc.example.com:443", grpc.WithTransportCredentials(credentials.NewTLS(nil)))
}

func unary(ctx context.Context) (string, error) {
	conn, err := dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	answer := &wrapperspb.StringValue{}
	err = conn.Invoke(ctx, "/quota.Test/Unary", wrapperspb.String("hello"), answer)
	return answer.Value, err
}

// streams makes one call of each kind of stream and reports how many messages came back.
func streams(ctx context.Context) (string, error) {
	conn, err := dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	var counts [3]int
	for i, kind := range []struct {
		method string
		sends  int
	}{{"Serve", 1}, {"Collect", 5}, {"Echo", 5}} {
		if counts[i], err = stream(ctx, conn, "/quota.Test/"+kind.method, kind.sends); err != nil {
			return "", err
		}
	}
	return fmt.Sprint(counts[0], " served, ", counts[1], " collected, ", counts[2], " echoed"), nil
}

func stream(ctx context.Context, conn *grpc.ClientConn, method string, sends int) (received int, err error) {
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return 0, err
	}
	for range sends {
		if err := s.SendMsg(wrapperspb.String("hello")); err != nil {
			return 0, err
		}
	}
	if err := s.CloseSend(); err != nil {
		return 0, err
	}
	for {
		err := s.RecvMsg(&wrapperspb.StringValue{})
		if errors.Is(err, io.EOF) {
			return received, nil
		}
		if err != nil {
			return received, err
		}
		received++
	}
}

// statuses alternates 800 calls that the server fails, each with a status and a text of its
// own, with good ones, and reports how many came as the server meant them.
func statuses(ctx context.Context) (string, error) {
	conn, err := dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	good, failed := 0, 0
	for i := range 800 {
		want := codes.Code(i%16 + 1)
		text := "call " + strconv.Itoa(i)
		with := metadata.AppendToOutgoingContext(ctx, "x-want", strconv.Itoa(int(want)), "x-text", text)
		err := conn.Invoke(with, "/quota.Test/Fail", wrapperspb.String(text), &wrapperspb.StringValue{})
		if got := status.Convert(err); got.Code() != want || got.Message() != text {
			return "", fmt.Errorf("call %d: want status %v %q: %w", i, want, text, err)
		}
		failed++
		answer := &wrapperspb.StringValue{}
		if err := conn.Invoke(ctx, "/quota.Test/Unary", wrapperspb.String(text), answer); err != nil || answer.Value != text {
			return "", fmt.Errorf("good call %d: got %q: %w", i, answer.Value, err)
		}
		good++
	}
	return fmt.Sprint(failed, " failed as they should, ", good, " good"), nil
}
